"""The agent: a program of its own, here in Python without any library; it could be in any language.

It is told its task by AGL_TASK and where the model is by OPENAI_BASE_URL; the last line that it prints is its answer.
"""

import json
import os
from urllib.request import Request, urlopen

task = json.loads(os.environ.get("AGL_TASK", "null"))
if task is not None:
    prompt = os.environ["AGL_PROMPT_TEMPLATE"].replace("{message}", task["message"])
    body = {"model": os.environ["AGL_MODEL"], "messages": [{"role": "user", "content": prompt}]}
    request = Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        data=json.dumps(body).encode(),
        headers={
            "content-type": "application/json",
            "authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
        },
    )
    with urlopen(request, timeout=120) as reply:
        print(json.load(reply)["choices"][0]["message"]["content"])
