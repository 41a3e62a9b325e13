"""The `openai` client with a memory: three lines around each call.

OPENAI_API_KEY=... python examples/openai_client.py "The crane is red." "Which colour is it?"
"""

import os
import sys

import openai

import recollect

MODEL = os.environ.get("MODEL", "gpt-6-luna")

messages = [{"role": "system", "content": "You are a careful colleague at the harbour."}]
with (
    openai.OpenAI() as client,
    recollect.open_blocking_memory(space="examples", window_tokens=32_000) as memory,
):
    for line in sys.argv[1:]:
        messages.append({"role": "user", "content": line})

        context = memory.prepare("openai", {"model": MODEL, "messages": messages})
        reply = client.chat.completions.create(**context.request)
        memory.observe("openai", reply)

        messages.append(reply.choices[0].message.to_dict())
        print(reply.choices[0].message.content)
