"""The agent: one of OpenAI's Agents SDK that says which queue a message is for. Put yours here."""

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner
from openai import AsyncOpenAI

import agl

# One for all rollouts: making a client takes longer than a call of a small model.
client = AsyncOpenAI(base_url="http://unset", api_key="unset", max_retries=1)


@agl.rollout
async def agent(task: dict[str, str], llm: agl.LLM, prompt_template: agl.PromptTemplate) -> str:
    """Return the run's final output; grader.py says what it is worth."""
    recorded = client.with_options(
        base_url=llm.base_url, api_key=llm.api_key
    )  # this rollout's own way to the model
    model = OpenAIChatCompletionsModel(model=llm.model, openai_client=recorded)
    prompt = prompt_template.format(message=task["message"])
    run = await Runner.run(
        Agent(name="desk", model=model), prompt, run_config=RunConfig(tracing_disabled=True)
    )
    return str(run.final_output)
