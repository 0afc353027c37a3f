"""The agent: a graph whose node asks the model which queue a message is for. Put your graph here."""

from typing import Any

import httpx
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

import agl

# For all rollouts: making clients takes longer than a call of a small model.
http, async_http = httpx.Client(timeout=120), httpx.AsyncClient(timeout=120)


def graph(llm: agl.LLM) -> Any:
    """Return the compiled graph over that model; add nodes, tools and edges as you like."""
    model = ChatOpenAI(
        model=llm.model,
        base_url=llm.base_url,
        api_key=llm.api_key,
        max_retries=1,
        http_client=http,
        http_async_client=async_http,
    )

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("ask", ask)
    built.add_edge(START, "ask")
    built.add_edge("ask", END)
    return built.compile()


@agl.rollout
async def agent(task: dict[str, str], llm: agl.LLM, prompt_template: agl.PromptTemplate) -> str:
    """Return what the graph's last message says; grader.py says what it is worth."""
    prompt = prompt_template.format(message=task["message"])
    end = await graph(llm).ainvoke({"messages": [("user", prompt)]})
    return str(end["messages"][-1].content)
