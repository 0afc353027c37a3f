"""The agent: asks the model which queue a message is for, without any framework. Put yours here."""

import json
from urllib.request import Request, urlopen

import agl


@agl.rollout
def agent(task: dict[str, str], llm: agl.LLM, prompt_template: agl.PromptTemplate) -> str:
    """Return what the model answers; grader.py says what it is worth. Each rollout runs in a thread of its own."""
    prompt = prompt_template.format(message=task["message"])
    body = {"model": llm.model, "messages": [{"role": "user", "content": prompt}]}
    request = Request(
        f"{llm.base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {llm.api_key}"},
    )
    with urlopen(request, timeout=120) as reply:
        answer = json.load(reply)
    return answer["choices"][0]["message"]["content"] or ""
