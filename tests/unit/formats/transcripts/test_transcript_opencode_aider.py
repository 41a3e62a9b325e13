"""opencode's sessions and aider's histories, as their clients write them."""

from __future__ import annotations

import json
import re
from typing import Any

from recollect.core.formats.transcripts import read_transcript, read_transcripts


def opencode(*messages: tuple[dict[str, Any], list[dict[str, Any]]]) -> bytes:
    rows = [{"info": info, "parts": parts} for info, parts in messages]
    return json.dumps({"info": {"id": "ses_1", "version": "1.18.33"}, "messages": rows}).encode()


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def test_a_reply_of_several_steps_is_a_message_for_each_with_its_results_behind_it() -> None:
    call = {"type": "tool", "tool": "bash", "callID": "c1"}
    state = {"status": "completed", "input": {"command": "ls"}, "output": "a.py"}
    finish = {"type": "step-finish", "tokens": {"input": 10, "output": 2, "cache": {"read": 5}}}
    parts = [{"type": "step-start"}, said("I look."), {**call, "state": state}, finish]
    parts += [{"type": "step-start"}, {"type": "reasoning", "text": "hm"}, said("One file.")]
    data = opencode(
        ({"role": "user", "time": {"created": 1_794_891_410_080}}, [said("What is here?")]),
        ({"role": "assistant", "modelID": "m"}, parts),
    )
    session = read_transcript(data)
    first, second, third, fourth = (json.loads(item.raw) for item in session.items)
    assert first == {"role": "user", "content": "What is here?"}
    assert second["content"] == "I look."
    assert json.loads(second["tool_calls"][0]["function"]["arguments"]) == {"command": "ls"}
    assert third == {"role": "tool", "tool_call_id": "c1", "content": "a.py"}
    assert fourth == {"role": "assistant", "content": "One file."}
    assert [tuple(request.shown) for request in session.requests] == [(0,), (0, 1, 2)]
    usage = session.requests[0].usage
    assert usage is not None
    assert usage.input_tokens == 15
    assert session.items[0].timestamp == 1_794_891_410.08
    assert (session.session_id, session.model) == ("ses_1", "m")


def test_a_summary_begins_the_history_anew_and_what_the_client_put_in_is_no_message() -> None:
    session = read_transcript(
        opencode(
            ({"role": "user"}, [said("Before.")]),
            ({"role": "assistant"}, [said("Yes.")]),
            ({"role": "user"}, [{"type": "compaction", "auto": True}]),
            ({"role": "assistant", "summary": True}, [said("In short: before.")]),
            ({"role": "user"}, [said("Continue.", synthetic=True)]),
            ({"role": "user"}, [said("After.")]),
            ({"role": "assistant"}, [said("Good.")]),
            ({"role": "user"}, [{"type": "hologram"}]),
        )
    )
    texts = [json.loads(item.raw)["content"] for item in session.items]
    assert texts == ["Before.", "Yes.", "In short: before.", "After.", "Good."]
    assert [texts[at] for at in session.requests[-1].shown] == ["In short: before.", "After."]
    assert session.compactions == 1
    assert session.passed_over == ("message 8: a part of unknown type 'hologram'",)


AIDER = """
# aider chat started at 2026-11-01 10:00:00

> Aider v0.86.2
> Model: x

#### /add makefile

> Added makefile to the chat

#### Indent makefiles with tabs.
#### Always.

Tabs it is:

makefile
```
<<<<<<< SEARCH
    all:
=======
\tall:
>>>>>>> REPLACE
```

> Tokens: 3k sent
> Applied edit to makefile

#### /ask why tabs?

Make wants them.

# aider chat started at 2026-11-02 10:00:00

> Aider v0.86.2
"""


def as_aider_ends_lines(text: str) -> bytes:
    """Aider ends what it writes of its own with two spaces."""
    return re.sub("^((?:####|>) .*)$", r"\1  ", text, flags=re.MULTILINE).encode()


def test_aiders_chat_is_read_as_aider_itself_restores_it() -> None:
    (session,) = read_transcripts(as_aider_ends_lines(AIDER))
    messages = [json.loads(item.raw) for item in session.items]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    assert messages[0]["content"] == "Indent makefiles with tabs.\nAlways."
    assert messages[1]["content"].endswith(">>>>>>> REPLACE\n```")
    assert messages[2]["content"] == "why tabs?"
    assert session.session_id == "aider 2026-11-01 10:00:00"
    assert [item.line for item in session.items] == [11, 14, 28, 30]


def test_aiders_inputs_are_what_the_user_said() -> None:
    data = b"\n# 2026-11-01 10:00:00.1\n+/add x.py\n\n# 2026-11-01 10:01:00.1\n+Use tabs\n+always\n"
    (session,) = read_transcripts(data)
    assert [json.loads(item.raw) for item in session.items] == [
        {"role": "user", "content": "Use tabs\nalways"}
    ]
