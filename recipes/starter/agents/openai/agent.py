"""The agent: asks the model which queue a message is for. Put yours here; all it needs of agl is the base URL."""

from openai import AsyncOpenAI

import agl

# One for all rollouts: making a client takes longer than a call of a small model.
client = AsyncOpenAI(base_url="http://unset", api_key="unset", max_retries=1)


@agl.rollout
async def agent(task: dict[str, str], llm: agl.LLM, prompt_template: agl.PromptTemplate) -> str:
    """Return what the model answers; grader.py says what it is worth."""
    recorded = client.with_options(
        base_url=llm.base_url, api_key=llm.api_key
    )  # this rollout's own way to the model
    prompt = prompt_template.format(message=task["message"])
    reply = await recorded.chat.completions.create(
        model=llm.model, messages=[{"role": "user", "content": prompt}]
    )
    return reply.choices[0].message.content or ""
