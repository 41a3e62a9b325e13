"""Histories with words, calls and results in them, and the summaries a good model would give."""

from typing import Any

from tests.unit.compaction.histories import entries_of

from recollect.core.formats.codec import CODECS
from recollect.core.values.compaction import CutPlan
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey
from recollect.core.values.reason import NOT_RUN
from recollect.system.config import build
from recollect.system.config.settings import Compaction

RULES = CODECS["anthropic"].rules
WORDS = "the parser keeps its place in the stream while readers wait for more of it to arrive "


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*map(_block, content)]}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*map(_block, content)]}


def thinking(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": "s"}


def calls(n: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"t{n}", "name": name, "input": arguments}


def results(n: int, text: str, *, error: bool = False) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": f"t{n}", "content": text}
    return {**block, "is_error": True} if error else block


def _block(content: Any) -> Any:
    return {"type": "text", "text": content} if isinstance(content, str) else content


def history(*messages: dict[str, Any]) -> tuple[Entry, ...]:
    return entries_of(list(messages), "anthropic")


def long_history(turns: int, words: int = 6, ask: str = "") -> tuple[Entry, ...]:
    """So many questions with answers, about `words` × 17 tokens each, distinct from each other."""
    messages: list[dict[str, Any]] = []
    for n in range(turns):
        messages.append(user(f"Question {n}: {WORDS * words}"))
        messages.append(assistant(f"Answer {n}: {WORDS * words}"))
    if ask:
        messages += [user(ask), assistant("On it.")]
    return history(*messages)


def plan_of(entries: tuple[Entry, ...], prefix: tuple[Entry, ...] = ()) -> CutPlan:
    return CutPlan(
        anchor=EntryKey("kept"),
        history=entries,
        turn_prefix=prefix,
        kept_tokens=0,
        summarized_tokens=sum(entry.tokens for entry in entries + prefix),
        reason=NOT_RUN,
    )


def compaction(**settings: Any) -> Compaction:
    return build({f"compaction.{name}": value for name, value in settings.items()}).compaction


def good_summary(mark: str = "parser", ask: str = "readers wait for the stream") -> str:
    """A summary that passes every check; `mark` tells it from others."""
    return (
        f"## Goal\nA {mark} that streams.\n\n## Decisions\nKeep the place.\n\n"
        "## Progress\nTried mmap, which failed.\n\n## Open TODOs\n- tests\n\n"
        f"## Constraints/Rules\nnone\n\n## Pending user asks\n- {ask}\n\n"
        "## Exact identifiers\nnone"
    )
