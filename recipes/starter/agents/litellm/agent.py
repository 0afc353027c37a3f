"""The agent: asks the model which queue a message is for. Put yours here; all it needs of agl is the base URL."""

import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # the prices that it brings along: no download

import litellm

import agl


@agl.rollout
async def agent(task: dict[str, str], llm: agl.LLM, prompt_template: agl.PromptTemplate) -> str:
    """Return what the model answers; grader.py says what it is worth."""
    prompt = prompt_template.format(message=task["message"])
    reply = await litellm.acompletion(
        model=f"openai/{llm.model}",  # what agl serves speaks OpenAI's format, whatever model is behind it
        api_base=llm.base_url,
        api_key=llm.api_key,
        messages=[{"role": "user", "content": prompt}],
    )
    return reply.choices[0].message.content or ""
