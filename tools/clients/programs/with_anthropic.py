# mypy: ignore-errors
"""The `anthropic` SDK: whole, streamed, a tool, a count of tokens."""

import json

import anthropic

client = anthropic.Anthropic()
messages = [{"role": "user", "content": "Where does the crane stand?"}]
told = []

whole = client.messages.create(model="claude-x", max_tokens=200, messages=messages)
told.append(whole.model_dump(mode="json"))

with client.messages.stream(model="claude-x", max_tokens=200, messages=messages) as stream:
    told.append("".join(stream.text_stream))
    told.append(stream.get_final_message().model_dump(mode="json"))

tools = [{"name": "weigh", "description": "Weighs.", "input_schema": {"type": "object"}}]
asked = [{"role": "user", "content": "CALL weigh, please."}]
called = client.messages.create(model="claude-x", max_tokens=200, messages=asked, tools=tools)
asked.append({"role": "assistant", "content": called.model_dump(mode="json")["content"]})
results = [
    {"type": "tool_result", "tool_use_id": block.id, "content": "12 tons"}
    for block in called.content
    if block.type == "tool_use"
]
asked.append({"role": "user", "content": results})
answer = client.messages.create(model="claude-x", max_tokens=200, messages=asked, tools=tools)
told.append(answer.model_dump(mode="json"))

told.append(client.messages.count_tokens(model="claude-x", messages=messages).input_tokens)
print(json.dumps(told))
