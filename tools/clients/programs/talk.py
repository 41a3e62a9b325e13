# mypy: ignore-errors
"""A loop on an official SDK, as programs have it: what the user says comes as lines of JSON.

For each line streamed requests go out, the shell tool is run as often as the model asks for it,
and a line says how the turn ended. The whole history is sent every time, and nothing is retried.
"""

import json
import subprocess
import sys

SYSTEM = "You are a careful colleague who works with the shell."
ABOUT = "Runs a command in the shell."
GIVEN = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SECONDS = 120.0


def ran(command):
    """What a command prints."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return done.stdout or done.stderr or "(nothing)"


class OverAnthropic:
    """`messages.stream`."""

    def __init__(self):
        import anthropic

        self._client = anthropic.Anthropic(max_retries=0, timeout=SECONDS)
        self._tools = [{"name": "bash", "description": ABOUT, "input_schema": GIVEN}]
        self._history = []

    def say(self, words):
        """One turn; the model's last words."""
        self._history.append({"role": "user", "content": words})
        while True:
            with self._client.messages.stream(
                model="claude-x",
                max_tokens=1024,
                system=SYSTEM,
                tools=self._tools,
                messages=self._history,
            ) as stream:
                message = stream.get_final_message()
            content = message.model_dump(mode="json", exclude_none=True)["content"]
            self._history.append({"role": "assistant", "content": content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": ran(block.input["command"]),
                }
                for block in message.content
                if block.type == "tool_use"
            ]
            if not results:
                return "".join(block.text for block in message.content if block.type == "text")
            self._history.append({"role": "user", "content": results})


class OverOpenAI:
    """`chat.completions.stream`."""

    def __init__(self):
        import openai

        self._client = openai.OpenAI(max_retries=0, timeout=SECONDS)
        function = {"name": "bash", "description": ABOUT, "parameters": GIVEN}
        self._tools = [{"type": "function", "function": function}]
        self._history = [{"role": "system", "content": SYSTEM}]

    def say(self, words):
        """One turn; the model's last words."""
        self._history.append({"role": "user", "content": words})
        while True:
            with self._client.chat.completions.stream(
                model="gpt-x", messages=self._history, tools=self._tools
            ) as stream:
                message = stream.get_final_completion().choices[0].message
            kept = {"role": "assistant", "content": message.content}
            calls = message.tool_calls or []
            if calls:
                kept["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {
                            "name": call.function.name,
                            "arguments": call.function.arguments,
                        },
                    }
                    for call in calls
                ]
            self._history.append(kept)
            if not calls:
                return message.content
            for call in calls:
                result = ran(json.loads(call.function.arguments)["command"])
                row = {"role": "tool", "tool_call_id": call.id, "content": result}
                self._history.append(row)


def main():
    """Talk until there are no more lines."""
    talker = {"anthropic": OverAnthropic, "openai": OverOpenAI}[sys.argv[1]]()
    for line in sys.stdin:
        ended = {"error": None}
        try:
            ended["text"] = talker.say(json.loads(line))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            ended["error"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps(ended), flush=True)


main()
