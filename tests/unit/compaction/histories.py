"""Small histories for the tests of compaction: a user, some tool work, an answer, and again."""

import json
from typing import Any

from recollect.core.formats.codec import CODECS
from recollect.core.rules.tokens import Weigher
from recollect.core.turn.align import LastRequest, enter, read
from recollect.core.values.edit import Cut
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.model import FormatName, WireRules
from recollect.core.values.reason import NOT_RUN

WEIGHER = Weigher()


def entries_of(messages: list[Any], format_name: FormatName = "openai-chat") -> tuple[Entry, ...]:
    """Messages of a wire format as entries with the keys k0, k1 and so on."""
    raws = [json.dumps(message).encode() for message in messages]
    done = read(raws, CODECS[format_name], b"k" * 32, WEIGHER, LastRequest())
    return tuple(enter(r, key(at)) for at, r in enumerate(done.new_readings))


def rules_of(format_name: FormatName = "openai-chat") -> WireRules:
    return CODECS[format_name].rules


def key(at: int) -> EntryKey:
    return EntryKey(f"k{at}")


def said(role: str, words: int, word: str = "word ") -> dict[str, Any]:
    return {"role": role, "content": word * words}


def call(n: int, *more: int) -> dict[str, Any]:
    calls = [
        {"id": f"t{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        for i in (n, *more)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(n: int, words: int) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"t{n}", "content": "word " * words}


def turn(n: int, words: int = 100) -> list[dict[str, Any]]:
    """A question, a call, its result and an answer: four messages."""
    return [said("user", words), call(n), result(n, words), said("assistant", words)]


def cut_at(at: int, number: int = 1, **more: Any) -> Cut:
    return Cut(
        anchor=key(at),
        summary=f"summary {number}",
        stage="compact",
        reason=NOT_RUN,
        turn=number,
        number=number,
        **more,
    )


def covering(entries: tuple[Entry, ...], at: int) -> tuple[MessageId, ...]:
    """The identities of what a cut before this place stands for."""
    return tuple(entry.id for entry in entries[:at])
