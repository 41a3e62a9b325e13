"""The gateway: the program only changes its base URL.

pip install '.[gateway]' openai
recollect gateway      # in another terminal; it prints its address, and where its token is
export GATEWAY_URL=http://127.0.0.1:8788 RECOLLECT_GATEWAY_TOKEN=...
OPENAI_API_KEY=... python examples/gateway_client.py "The crane is red." "Which color is it?"
"""

import os
import sys

import openai

MODEL = os.environ.get("MODEL", "gpt-6-luna")
HEADERS = {
    "x-recollect-token": os.environ["RECOLLECT_GATEWAY_TOKEN"],
    "x-recollect-space": "examples",
    "x-recollect-session": "gateway",
}

messages = [{"role": "system", "content": "You are a careful colleague at the harbour."}]
url = os.environ["GATEWAY_URL"]
with openai.OpenAI(base_url=f"{url}/v1", default_headers=HEADERS) as client:
    for line in sys.argv[1:]:
        messages.append({"role": "user", "content": line})
        reply = client.chat.completions.create(model=MODEL, messages=messages)
        messages.append(reply.choices[0].message.to_dict())
        print(reply.choices[0].message.content)
