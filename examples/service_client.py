"""The service: a client of `recollect serve` around each model call.

pip install '.[remote]' anthropic
export SERVICE_URL=http://127.0.0.1:8789 RECOLLECT_KEY=rk_...
ANTHROPIC_API_KEY=... python examples/service_client.py "The crane is red." "Which color is it?"
"""

import json
import os
import sys

import anthropic

from recollect.client import MemoryClient

MODEL = os.environ.get("MODEL", "claude-sonnet-5-5")
SPACE, SESSION = "examples", "service"

messages = []
with (
    anthropic.Anthropic() as model,
    MemoryClient(os.environ["SERVICE_URL"], os.environ["RECOLLECT_KEY"]) as memory,
):
    for line in sys.argv[1:]:
        messages.append({"role": "user", "content": line})
        request = {"model": MODEL, "max_tokens": 1_000, "messages": messages}

        prepared = memory.prepare(SPACE, SESSION, request)
        reply = model.messages.create(**json.loads(prepared.request))
        memory.observe(SPACE, SESSION, reply.to_dict(), turn=prepared.turn)

        messages.append({"role": "assistant", "content": reply.to_dict()["content"]})
        print("".join(block.text for block in reply.content if block.type == "text"))
