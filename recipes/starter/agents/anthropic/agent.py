"""The agent: asks the model which queue a message is for. Put yours here; all it needs of agl is the base URL."""

from anthropic import AsyncAnthropic

import agl

# One for all rollouts: making a client takes longer than a call of a small model.
client = AsyncAnthropic(base_url="http://unset", api_key="unset", max_retries=1)


@agl.rollout
async def agent(task: dict[str, str], llm: agl.LLM, prompt_template: agl.PromptTemplate) -> str:
    """Return what the model answers; grader.py says what it is worth."""
    # this rollout's own way to the model
    recorded = client.with_options(base_url=llm.anthropic_base_url, api_key=llm.api_key)
    prompt = prompt_template.format(message=task["message"])
    reply = await recorded.messages.create(
        model=llm.model, max_tokens=64, messages=[{"role": "user", "content": prompt}]
    )
    return "".join(block.text for block in reply.content if block.type == "text")
