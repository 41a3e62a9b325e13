# mypy: ignore-errors
"""The `openai` SDK: Chat Completions and Responses, whole and streamed, a tool, the models."""

import json

import openai

client = openai.OpenAI()
question = "Where does the crane stand?"
messages = [{"role": "user", "content": question}]
told = []

chat = client.chat.completions.create(model="gpt-x", messages=messages)
told.append(chat.model_dump(mode="json"))
chunks = client.chat.completions.create(
    model="gpt-x", messages=messages, stream=True, stream_options={"include_usage": True}
)
told.append([chunk.model_dump(mode="json") for chunk in chunks])

function = {"name": "weigh", "description": "Weighs.", "parameters": {"type": "object"}}
tools = [{"type": "function", "function": function}]
asked = [{"role": "user", "content": "CALL weigh, please."}]
called = client.chat.completions.create(model="gpt-x", messages=asked, tools=tools)
asked.append(called.choices[0].message.model_dump(mode="json", exclude_none=True))
for call in called.choices[0].message.tool_calls or []:
    asked.append({"role": "tool", "tool_call_id": call.id, "content": "12 tons"})
answer = client.chat.completions.create(model="gpt-x", messages=asked, tools=tools)
told.append(answer.model_dump(mode="json"))

told.append(client.responses.create(model="gpt-x", input=question).model_dump(mode="json"))
with client.responses.stream(model="gpt-x", input=question) as stream:
    told.append([event.type for event in stream])
    told.append(stream.get_final_response().output_text)

told.append([model.id for model in client.models.list()])
print(json.dumps(told))
