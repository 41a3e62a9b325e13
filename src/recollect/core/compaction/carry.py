"""Collects files, failures, names and lines that must remain after a cut, without a model. Such
details come from messages and the previous compaction, never from a summary. Also assembles the
whole summary and limits its size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from recollect.core.compaction.ask import HEADINGS, IDENTIFIERS_HEADING, decoded, defuse
from recollect.core.compaction.chunks import fit, whole_lines
from recollect.core.compaction.lines import choose_lines, gather_lines, rank_names
from recollect.core.formats.json_text import strings_of
from recollect.core.formats.summaries import (
    LINES_TAG,
    MODIFIED_TAG,
    NAMES_TAG,
    PINNED_HEADING,
    READ_TAG,
    RULES_TAG,
    part_pinned,
    without_block,
)
from recollect.core.rules.text import UNKNOWN_TOOL, clean_text
from recollect.core.values.compaction import Carried, ToolFailure
from recollect.core.values.history import Entry
from recollect.core.values.message import CallId, ToolCall, ToolResult

MOST_FAILURES: Final = 8
FAILURE_CHARS: Final = 240
_ATTEMPT_CHARS: Final = 90
_EDGE_CHARS: Final = 600
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
_SEARCHES: Final = re.compile(r"\b(?:e?grep|rg|ag|diff|cmp|test|pgrep)\b")
_MAIN_ARGUMENTS: Final = ("command", "cmd", "path", "file_path", "url", "query", "input")

# Names of file-reading tools in lower case without punctuation: pi, OpenClaw, Claude Code, Codex,
# Gemini, editor tools.
_READERS: Final = frozenset(
    {"read", "readfile", "readfiles", "readmanyfiles", "view", "viewfile", "viewimage", "openfile"}
    | {"notebookread", "getfile"}
)
_WRITERS: Final = frozenset(
    {"write", "writefile", "writetofile", "createfile", "edit", "editfile", "multiedit", "insert"}
    | {"strreplace", "searchreplace", "replace", "replaceinfile", "notebookedit", "deletefile"}
    | {"applydiff", "insertedit"}
)
_EDITORS: Final = frozenset({"strreplaceeditor", "strreplacebasededittool", "texteditor"})
_PATCHERS: Final = frozenset({"applypatch", "bash", "shell", "exec", "execcommand", "localshell"})
_PATH_NAMES: Final = (
    *("path", "file_path", "filename", "filePath", "file", "target_file", "absolute_path"),
    *("notebook_path", "paths", "files"),
)
_PATCHED: Final = re.compile(
    r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.{1,400}?)\s*$", re.MULTILINE
)
_SIGNS: Final = re.compile(r"[^a-z0-9]")
_MOST_PATH_CHARS: Final = 400
_MOST_IN_A_CALL: Final = 50
MOST_FILES: Final = 200
SUMMARY_CHARS: Final = 16_000
RULES_CHARS: Final = 2000
FILE_LIST_CHARS: Final = 900
"""Limit of a list of files. It and `SECTION_SHARE` have the same values as in OpenClaw."""
SECTION_SHARE: Final = 0.25
SUFFIX_SHARE: Final = 0.6
MOST_NAMES: Final = 12
FAILURES_HEADING: Final = "## Tool failures"
_VERBATIM: Final = "- Verbatim: "
_ROUNDS: Final = 3
_FROM_THE_END: Final = (LINES_TAG, NAMES_TAG, RULES_TAG, MODIFIED_TAG, READ_TAG)
_OWN_HEADING: Final = re.compile(rf"^(?={FAILURES_HEADING}|{PINNED_HEADING})", re.M)
_OWN_LINE: Final = re.compile(rf"^-(?={_VERBATIM[1:]})", re.M)


def failures(
    entries: Sequence[Entry], before: Sequence[ToolFailure] = ()
) -> tuple[ToolFailure, ...]:
    """Return tool failures that were not followed by a success, oldest first. `before` are failures
    from the previous compaction."""
    standing: dict[tuple[str, str], ToolFailure] = {
        (failure.tool, failure.said.split(": ", 1)[0]): failure for failure in before
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
                    text = clean_text(f"{attempt}: {_error_line(part.text)}"[:FAILURE_CHARS])
                    standing[tool, attempt] = ToolFailure(tool=tool, said=text)
    return tuple(standing.values())[-MOST_FAILURES:]


def _failed(part: ToolResult) -> bool:
    if part.is_error:
        return True
    text = part.text
    edges = text if len(text) <= 2 * _EDGE_CHARS else text[:_EDGE_CHARS] + text[-_EDGE_CHARS:]
    codes = [int(match[1]) for match in _EXIT_CODE.finditer(edges)]
    if not any(codes):
        return False
    return any(_output_lines(text))


def _found_nothing(part: ToolResult, attempt: str) -> bool:
    codes = _EXIT_CODE.findall(part.text[-_EDGE_CHARS:])
    silent = codes == ["1"] and not any(_output_lines(part.text))
    return silent and _SEARCHES.search(attempt) is not None


def _output_lines(text: str) -> Iterator[str]:
    for line in text[-20_000:].splitlines():
        bare = " ".join(line.split())
        without_code = _EXIT_CODE.sub("", bare)
        least = 4 if without_code == bare else _WRAPPING_CHARS
        if len(bare) >= least and bare.lower() != "(no output)":
            yield bare


def _error_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in text[-20_000:].splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line[:400])]
    chosen = telling or lines
    return chosen[-1] if chosen else "failed without a word"


def _attempt(call: ToolCall | None) -> str:
    if call is None:
        return "an earlier call"
    written = call.arguments
    arguments = decoded(written)
    if isinstance(arguments, dict):
        main = next((arguments[name] for name in _MAIN_ARGUMENTS if arguments.get(name)), None)
        if main is not None:
            written = main if isinstance(main, str) else json.dumps(main, ensure_ascii=False)
    return " ".join(written.replace(": ", ":").split())[:_ATTEMPT_CHARS].rstrip(": ") or "a call"


def touched(entries: Sequence[Entry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that tool calls read, and those that they modified."""
    failed = {
        part.call_id
        for entry in entries
        for part in entry.parts
        if isinstance(part, ToolResult) and part.is_error
    }
    read: dict[str, None] = {}
    modified: dict[str, None] = {}
    for entry in entries:
        for part in entry.parts:
            if isinstance(part, ToolCall) and part.id not in failed:
                for written, changed in _paths(part):
                    path = clean_text(written)
                    into = modified if changed else read
                    into.pop(path, None)
                    into[path] = None
    return tuple(read), tuple(modified)


def _paths(part: ToolCall) -> Iterator[tuple[str, bool]]:
    name = _SIGNS.sub("", part.name.lower())
    given = decoded(part.arguments)
    arguments = given if isinstance(given, dict) else {"input": given}
    if name in _READERS:
        yield from ((path, False) for path in _named(arguments))
    elif name in _WRITERS:
        yield from ((path, True) for path in _named(arguments))
    elif name in _EDITORS:
        changed = arguments.get("command") != "view"
        yield from ((path, changed) for path in _named(arguments))
    elif name in _PATCHERS:
        for text in list(strings_of(arguments)) or [part.arguments]:
            found = _PATCHED.findall(text)[:_MOST_IN_A_CALL]
            yield from ((path, True) for path in found)


def _named(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name in _PATH_NAMES:
        value = arguments.get(name)
        for path in value[:_MOST_IN_A_CALL] if isinstance(value, list) else [value]:
            if isinstance(path, str) and 0 < len(path.strip()) <= _MOST_PATH_CHARS:
                yield " ".join(path.split())


def carry(
    entries: Sequence[Entry], previous: Carried | None = None, *, kept: Sequence[Entry] = ()
) -> Carried:
    """Return the details that code adds after the summary: those of the cut `entries` and of the
    previous cut. `kept` are messages that the cut does not remove."""
    before = previous or Carried()
    read, modified = touched(entries)
    all_modified = _newest((*before.modified_files, *modified))
    all_read = _newest((*before.read_files, *read), leaving_out=set(all_modified))
    names = rank_names(entries, before.identifiers)
    return Carried(
        read_files=tuple(sorted(all_read)),
        modified_files=tuple(sorted(all_modified)),
        failures=failures(entries, before.failures),
        identifiers=names,
        lines=gather_lines(entries, names, before.lines, kept=kept),
    )


def _newest(paths: Iterable[str], leaving_out: Iterable[str] = ()) -> list[str]:
    known: dict[str, None] = {}
    skipped = set(leaving_out)
    for path in paths:
        known.pop(path, None)
        if path not in skipped:
            known[path] = None
    return list(known)[-MOST_FILES:]


def append_carried(
    summary: str,
    carried: Carried,
    rules_text: str = "",
    *,
    most_tokens: int,
    count_tokens: Callable[[str], int],
    lines_tokens: int = 0,
) -> str:
    """Build the whole summary: the model's text, the collected details, both within limits, then
    the most informative lines that neither of them quotes."""
    body = _OWN_LINE.sub("*", _OWN_HEADING.sub("#", defuse(strip_carried(summary))))
    chars = SUMMARY_CHARS
    while True:
        whole = _assembled(body, carried, rules_text, chars)
        tokens = count_tokens(whole)
        if tokens <= most_tokens or chars <= 1:
            break
        # the number of tokens per character differs by script, so count after each change
        chars = max(1, min(chars - 1, len(whole) * most_tokens * 98 // (tokens * 100)))
    lines = choose_lines(carried.lines, whole, most_tokens=lines_tokens, count_tokens=count_tokens)
    return f"{whole}\n\n{lines}" if lines else whole


def strip_carried(summary: str) -> str:
    """Return a summary without the sections that code writes again, but with its pinned quotes."""
    body, pinned = part_pinned(summary.strip())
    for tag in _FROM_THE_END:
        body = without_block(body, tag)
    body = _without_failures(body)
    above, _, last = body.rpartition("\n")
    if last.startswith(_VERBATIM):
        body = above.rstrip()
    above, _, last = body.rpartition("\n")
    if last.rstrip() == IDENTIFIERS_HEADING:
        body = above.rstrip()
    return "\n\n".join(text for text in (body.strip(), pinned) if text)


def without_bare_names(summary: str) -> str:
    """Remove lists of names from a summary, because a name alone carries no information."""
    return "\n".join(line for line in summary.split("\n") if not line.startswith(_VERBATIM))


def _without_failures(body: str) -> str:
    lines = body.rstrip().split("\n")
    first = len(lines)
    while first and lines[first - 1].startswith("- "):
        first -= 1
    if first == len(lines) or not first or lines[first - 1] != FAILURES_HEADING:
        return body
    return "\n".join(lines[: first - 1]).rstrip()


def _assembled(body: str, carried: Carried, rules_text: str, chars: int) -> str:
    body, listed = _without_identifiers(body)
    section, left = int(chars * SECTION_SHARE), int(chars * SUFFIX_SHARE)
    rules = _rules(rules_text, min(section, left, RULES_CHARS))
    left -= len(rules)
    room_for_names = min(section, left)
    left -= room_for_names if carried.identifiers or listed else 0
    failed = _failures(carried.failures, min(section, left))
    left -= len(failed)
    files = _files(carried, min(section, left))
    kept = body
    suffix: list[str] = []
    for _ in range(_ROUNDS):
        # `kept` may have lost names when it was shortened: list these names
        named = _identifiers(listed, carried.identifiers[:MOST_NAMES], kept, room_for_names)
        suffix = [text for text in (named, failed, files, rules) if text]
        kept = fit(kept, chars - sum(len(text) + 2 for text in suffix))
    return "\n\n".join([text for text in (kept, *suffix) if text])[:chars]


def _without_identifiers(body: str) -> tuple[str, str]:
    kept: list[str] = []
    listed: list[str] = []
    for section in HEADINGS.split(body):
        heading, _, below = section.partition("\n")
        if heading.strip().rstrip(":").casefold() == IDENTIFIERS_HEADING.casefold():
            # notes on a split turn follow a horizontal rule
            lines, ruled, rest = f"\n{below}".partition("\n---\n")
            listed.extend(line for line in lines.split("\n") if line.strip())
            kept.append(f"---\n{rest}" if ruled else "")
        else:
            kept.append(section)
    named = [line for line in listed if line.strip("-* .").casefold() not in {"", "none", "n/a"}]
    return "".join(kept).strip(), "\n".join(named)


def _identifiers(listed: str, names: Sequence[str], known: str, most: int) -> str:
    room = most - len(IDENTIFIERS_HEADING) - 1
    held = whole_lines(listed, room // 2 if names else room)
    folded = f"{known}\n{held}".casefold()
    missing = [name for name in names if name.casefold() not in folded]
    room -= len(held) + (1 if held else 0) + len(_VERBATIM)
    chosen: list[str] = []
    for name in missing:
        spelled = defuse(" ".join(name.split()))
        if len(spelled) + 2 <= room:
            chosen.append(spelled)
            room -= len(spelled) + 2
    lines = [held] if held else []
    if chosen:
        lines.append(_VERBATIM + ", ".join(chosen))
    return "\n".join([IDENTIFIERS_HEADING, *lines]) if lines else ""


def _failures(failed: Sequence[ToolFailure], most: int) -> str:
    room = most - len(FAILURES_HEADING)
    lines: list[str] = []
    for failure in reversed(failed):
        line = defuse(" ".join(f"- {failure.tool}: {failure.said}".split()))
        if len(line) + 1 > room:
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join([FAILURES_HEADING, *reversed(lines)]) if lines else ""


def _files(carried: Carried, most: int) -> str:
    modified = _listed(MODIFIED_TAG, carried.modified_files, min(most, FILE_LIST_CHARS))
    left = most - len(modified) - 2
    read = _listed(READ_TAG, carried.read_files, min(left, FILE_LIST_CHARS))
    return "\n\n".join([text for text in (read, modified) if text])


def _listed(tag: str, paths: Sequence[str], most: int) -> str:
    room = most - 2 * len(tag) - 8
    lines: list[str] = []
    for path in (defuse(" ".join(path.splitlines())) for path in paths):
        if len(path) + 1 > room:
            continue
        lines.append(path)
        room -= len(path) + 1
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"]) if lines else ""


def _rules(rules_text: str, most: int) -> str:
    tag = RULES_TAG
    text = whole_lines(defuse(rules_text.strip()), most - 2 * len(tag) - 8)
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""
