"""Collects tool calls that failed, so that the model does not try them again.

Owns what counts as a failure, and how one is put into a line: what was tried, then what was said.
Must never keep a failure whose very call succeeded later. What always holds: at most eight lines
of 240 characters, the newest ones, none twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from recollect.rules.text import UNKNOWN_TOOL, clean_text
from recollect.values.compaction import ToolFailure
from recollect.values.history import Entry
from recollect.values.message import CallId, ToolCall, ToolResult

MOST_FAILURES: Final = 8
FAILURE_CHARS: Final = 240
"""Both OpenClaw's (notes/formats.md B)."""
_ATTEMPT_CHARS: Final = 90
_EDGE_CHARS: Final = 600
"""An exit code stands at the beginning or the end of a result; in between it is quoted."""
_EXIT_CODE: Final = re.compile(
    r"""(?:exit(?:ed)?(?:\ with)?[\ _-]?(?:code|status)|returned\ (?:code|status))
        ["']?\s{0,3}[:=]?\s{0,3}(-?\d{1,5})\b""",
    re.IGNORECASE | re.VERBOSE,
)
_TELLING: Final = re.compile(
    r"\b(?:error|exception|fail(?:ed|ure)?|fatal|denied|not found|no such|cannot|can't|unable"
    r"|refused|timed? ?out|invalid|panic|E[A-Z]{4,})\b",
    re.IGNORECASE,
)
_WRAPPING_CHARS: Final = 90
"""A line with the exit code in it may be no more than what an agent writes around it."""
_SEARCHES: Final = re.compile(r"\b(?:e?grep|rg|ag|diff|cmp|test|pgrep)\b")
_MAIN_ARGUMENTS: Final = ("command", "cmd", "path", "file_path", "url", "query", "input")


def failures(
    entries: Sequence[Entry], before: Sequence[ToolFailure] = ()
) -> tuple[ToolFailure, ...]:
    """The failures that still stand, oldest first; those carried so far count as older."""
    standing: dict[tuple[str, str], ToolFailure] = {
        (one.tool, one.said.split(": ", 1)[0]): one for one in before
    }
    calls: dict[CallId, ToolCall] = {}
    for entry in entries:
        for part in entry.parts:
            if isinstance(part, ToolCall):
                calls[part.id] = part
            elif isinstance(part, ToolResult):
                call = calls.get(part.call_id)
                tool = clean_text((call.name if call else part.name) or UNKNOWN_TOOL)[:64]
                attempt = _attempt(call)
                standing.pop((tool, attempt), None)
                if _failed(part) and not _found_nothing(part, attempt):
                    said = clean_text(f"{attempt}: {_said(part.text)}"[:FAILURE_CHARS])
                    standing[tool, attempt] = ToolFailure(tool=tool, said=said)
    return tuple(standing.values())[-MOST_FAILURES:]


def _failed(part: ToolResult) -> bool:
    if part.is_error:
        return True
    text = part.text
    edges = text if len(text) <= 2 * _EDGE_CHARS else text[:_EDGE_CHARS] + text[-_EDGE_CHARS:]
    codes = [int(found[1]) for found in _EXIT_CODE.finditer(edges)]
    if not any(codes):
        return False
    return any(_said_by_tool(text))


def _found_nothing(part: ToolResult, attempt: str) -> bool:
    """Whether a search or a comparison ended with 1 and no word: that is an answer."""
    codes = _EXIT_CODE.findall(part.text[-_EDGE_CHARS:])
    silent = codes == ["1"] and not any(_said_by_tool(part.text))
    return silent and _SEARCHES.search(attempt) is not None


def _said_by_tool(text: str) -> Iterator[str]:
    """The lines of a result, as far as they say more than how it ended."""
    for line in text[-20_000:].splitlines():
        bare = " ".join(line.split())
        without_code = _EXIT_CODE.sub("", bare)
        least = 4 if without_code == bare else _WRAPPING_CHARS
        if len(bare) >= least and bare.lower() != "(no output)":
            yield bare


def _said(text: str) -> str:
    """The line that tells most: the last that speaks of an error, else the last one."""
    lines = [" ".join(line.split()) for line in text[-20_000:].splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line[:400])]
    chosen = telling or lines
    return chosen[-1] if chosen else "failed without a word"


def _attempt(call: ToolCall | None) -> str:
    """What was tried, in one short stretch without the mark that ends it."""
    if call is None:
        return "an earlier call"
    written = call.arguments
    try:
        arguments = json.loads(written)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        main = next((arguments[name] for name in _MAIN_ARGUMENTS if arguments.get(name)), None)
        if main is not None:
            written = main if isinstance(main, str) else json.dumps(main, ensure_ascii=False)
    return " ".join(written.replace(": ", ":").split())[:_ATTEMPT_CHARS].rstrip(": ") or "a call"
