"""Collects files, failures, names and lines that must remain after a cut, without a model. Such
details come from messages and the previous compaction, never from a summary. Also assembles the
whole summary and limits its size."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from recollect.core.compaction.ask import HEADINGS, IDENTIFIERS_HEADING, decode_arguments, defuse
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

MAX_FAILURES: Final = 8
"""The same as in OpenClaw."""
FAILURE_CHARS: Final = 240
"""The same as in OpenClaw."""
_ATTEMPT_CHARS: Final = 90
"""Not measured; leaves most of `FAILURE_CHARS` for the error."""
_EDGE_CHARS: Final = 600
"""Not measured; tools report their exit code first or last, and output in between may quote
others."""
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
"""Not measured; a longer output tells more than the exit code."""
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
_MAX_PATH_CHARS: Final = 400
"""Not measured; a longer argument is content, not a path."""
_MAX_PATHS_PER_CALL: Final = 50
"""Not measured; bounds the list that one call may fill."""
MAX_FILES: Final = 200
"""Not measured; bounds a state. The summary's own limit is `FILE_LIST_CHARS`."""
SUMMARY_CHARS: Final = 16_000
"""The same as in OpenClaw."""
RULES_CHARS: Final = 2000
"""The same as in OpenClaw."""
FILE_LIST_CHARS: Final = 900
"""Limit of a list of files. It and `SECTION_SHARE` have the same values as in OpenClaw."""
SECTION_SHARE: Final = 0.25
"""Share of a summary for one section that code adds, so that the model's text keeps its space."""
SUFFIX_SHARE: Final = 0.6
"""Not measured; leaves the model's text at least .4 of a summary."""
MAX_NAMES: Final = 12
"""A name alone does not help the model: lines keep .56 of the content that later messages need,
lists of names .10 and .22 (decision 0041)."""
FAILURES_HEADING: Final = "## Tool failures"
_VERBATIM: Final = "- Verbatim: "
_ROUNDS: Final = 3
"""Not measured; the text rarely loses another name after the second round."""
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
    return tuple(standing.values())[-MAX_FAILURES:]


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
    candidates = telling or lines
    return candidates[-1] if candidates else "failed without a word"


def _attempt(call: ToolCall | None) -> str:
    if call is None:
        return "an earlier call"
    text = call.arguments
    arguments = decode_arguments(text)
    if isinstance(arguments, dict):
        main = next((arguments[name] for name in _MAIN_ARGUMENTS if arguments.get(name)), None)
        if main is not None:
            text = main if isinstance(main, str) else json.dumps(main, ensure_ascii=False)
    return " ".join(text.replace(": ", ":").split())[:_ATTEMPT_CHARS].rstrip(": ") or "a call"


def find_touched_files(entries: Sequence[Entry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that tool calls read, and those that they modified."""
    failed_ids = {
        part.call_id
        for entry in entries
        for part in entry.parts
        if isinstance(part, ToolResult) and part.is_error
    }
    read: dict[str, None] = {}
    modified: dict[str, None] = {}
    for entry in entries:
        for part in entry.parts:
            if isinstance(part, ToolCall) and part.id not in failed_ids:
                for raw_path, changed in _paths_of(part):
                    path = clean_text(raw_path)
                    into = modified if changed else read
                    into.pop(path, None)
                    into[path] = None
    return tuple(read), tuple(modified)


def _paths_of(part: ToolCall) -> Iterator[tuple[str, bool]]:
    name = _SIGNS.sub("", part.name.lower())
    value = decode_arguments(part.arguments)
    arguments = value if isinstance(value, dict) else {"input": value}
    if name in _READERS:
        yield from ((path, False) for path in _find_paths(arguments))
    elif name in _WRITERS:
        yield from ((path, True) for path in _find_paths(arguments))
    elif name in _EDITORS:
        changed = arguments.get("command") != "view"
        yield from ((path, changed) for path in _find_paths(arguments))
    elif name in _PATCHERS:
        for text in list(strings_of(arguments)) or [part.arguments]:
            paths = _PATCHED.findall(text)[:_MAX_PATHS_PER_CALL]
            yield from ((path, True) for path in paths)


def _find_paths(arguments: Mapping[str, Any]) -> Iterator[str]:
    for name in _PATH_NAMES:
        value = arguments.get(name)
        for path in value[:_MAX_PATHS_PER_CALL] if isinstance(value, list) else [value]:
            if isinstance(path, str) and 0 < len(path.strip()) <= _MAX_PATH_CHARS:
                yield " ".join(path.split())


def carry(
    entries: Sequence[Entry], previous: Carried | None = None, *, kept_entries: Sequence[Entry] = ()
) -> Carried:
    """Return the details that code adds after the summary: those of the cut `entries` and of the
    previous cut. `kept_entries` are messages that the cut does not remove."""
    before = previous or Carried()
    read, modified = find_touched_files(entries)
    all_modified = _keep_newest((*before.modified_files, *modified))
    all_read = _keep_newest((*before.read_files, *read), leaving_out=set(all_modified))
    names = rank_names(entries, before.identifiers)
    return Carried(
        read_files=tuple(sorted(all_read)),
        modified_files=tuple(sorted(all_modified)),
        failures=failures(entries, before.failures),
        identifiers=names,
        lines=gather_lines(entries, names, before.lines, kept_entries=kept_entries),
    )


def _keep_newest(paths: Iterable[str], leaving_out: Iterable[str] = ()) -> list[str]:
    known: dict[str, None] = {}
    skipped_paths = set(leaving_out)
    for path in paths:
        known.pop(path, None)
        if path not in skipped_paths:
            known[path] = None
    return list(known)[-MAX_FILES:]


def append_carried(
    summary: str,
    details: Carried,
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
        full_summary = _assemble(body, details, rules_text, chars)
        tokens = count_tokens(full_summary)
        if tokens <= most_tokens or chars <= 1:
            break
        # the number of tokens per character differs by script, so count after each change
        chars = max(1, min(chars - 1, len(full_summary) * most_tokens * 98 // (tokens * 100)))
    lines = choose_lines(
        details.lines, full_summary, most_tokens=lines_tokens, count_tokens=count_tokens
    )
    return f"{full_summary}\n\n{lines}" if lines else full_summary


def strip_carried(summary: str) -> str:
    """Return a summary without the sections that code writes again, but with its pinned quotes."""
    body, quotes = part_pinned(summary.strip())
    for tag in _FROM_THE_END:
        body = without_block(body, tag)
    body = _without_failures(body)
    above, _, last = body.rpartition("\n")
    if last.startswith(_VERBATIM):
        body = above.rstrip()
    above, _, last = body.rpartition("\n")
    if last.rstrip() == IDENTIFIERS_HEADING:
        body = above.rstrip()
    return "\n\n".join(text for text in (body.strip(), quotes) if text)


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


def _assemble(body: str, details: Carried, rules_text: str, chars: int) -> str:
    body, identifier_list = _without_identifiers(body)
    section, left_chars = int(chars * SECTION_SHARE), int(chars * SUFFIX_SHARE)
    rules = _write_rules(rules_text, min(section, left_chars, RULES_CHARS))
    left_chars -= len(rules)
    room_for_names = min(section, left_chars)
    left_chars -= room_for_names if details.identifiers or identifier_list else 0
    failure_text = _write_failures(details.failures, min(section, left_chars))
    left_chars -= len(failure_text)
    files = _write_files(details, min(section, left_chars))
    kept_body = body
    suffix: list[str] = []
    for _ in range(_ROUNDS):
        # `kept_body` may have lost names when it was shortened: list them
        identifier_text = _write_identifiers(
            identifier_list, details.identifiers[:MAX_NAMES], kept_body, room_for_names
        )
        suffix = [text for text in (identifier_text, failure_text, files, rules) if text]
        kept_body = fit(kept_body, chars - sum(len(text) + 2 for text in suffix))
    return "\n\n".join([text for text in (kept_body, *suffix) if text])[:chars]


def _without_identifiers(body: str) -> tuple[str, str]:
    kept_sections: list[str] = []
    listed_lines: list[str] = []
    for section in HEADINGS.split(body):
        heading, _, below = section.partition("\n")
        if heading.strip().rstrip(":").casefold() == IDENTIFIERS_HEADING.casefold():
            # notes on a split turn follow a horizontal rule
            lines, rule, below_rule = f"\n{below}".partition("\n---\n")
            listed_lines.extend(line for line in lines.split("\n") if line.strip())
            kept_sections.append(f"---\n{below_rule}" if rule else "")
        else:
            kept_sections.append(section)
    named_lines = [
        line for line in listed_lines if line.strip("-* .").casefold() not in {"", "none", "n/a"}
    ]
    return "".join(kept_sections).strip(), "\n".join(named_lines)


def _write_identifiers(
    identifier_list: str, names: Sequence[str], known_text: str, max_chars: int
) -> str:
    left_chars = max_chars - len(IDENTIFIERS_HEADING) - 1
    kept_list = whole_lines(identifier_list, left_chars // 2 if names else left_chars)
    folded_text = f"{known_text}\n{kept_list}".casefold()
    missing = [name for name in names if name.casefold() not in folded_text]
    left_chars -= len(kept_list) + (1 if kept_list else 0) + len(_VERBATIM)
    safe_names = (defuse(" ".join(name.split())) for name in missing)
    chosen_names = list(_fitting(safe_names, left_chars, joint_chars=2))
    lines = [kept_list] if kept_list else []
    if chosen_names:
        lines.append(_VERBATIM + ", ".join(chosen_names))
    return "\n".join([IDENTIFIERS_HEADING, *lines]) if lines else ""


def _write_failures(tool_failures: Sequence[ToolFailure], max_chars: int) -> str:
    left_chars = max_chars - len(FAILURES_HEADING)
    lines: list[str] = []
    for failure in reversed(tool_failures):
        line = defuse(" ".join(f"- {failure.tool}: {failure.said}".split()))
        if len(line) + 1 > left_chars:
            break
        lines.append(line)
        left_chars -= len(line) + 1
    return "\n".join([FAILURES_HEADING, *reversed(lines)]) if lines else ""


def _write_files(details: Carried, max_chars: int) -> str:
    modified = _list_paths(MODIFIED_TAG, details.modified_files, min(max_chars, FILE_LIST_CHARS))
    left_chars = max_chars - len(modified) - 2
    read = _list_paths(READ_TAG, details.read_files, min(left_chars, FILE_LIST_CHARS))
    return "\n\n".join([text for text in (read, modified) if text])


def _list_paths(tag: str, paths: Sequence[str], max_chars: int) -> str:
    safe_paths = (defuse(" ".join(path.splitlines())) for path in paths)
    lines = list(_fitting(safe_paths, max_chars - 2 * len(tag) - 8, joint_chars=1))
    return "\n".join([f"<{tag}>", *lines, f"</{tag}>"]) if lines else ""


def _fitting(texts: Iterable[str], left_chars: int, *, joint_chars: int) -> Iterator[str]:
    for text in texts:
        if len(text) + joint_chars <= left_chars:
            left_chars -= len(text) + joint_chars
            yield text


def _write_rules(rules_text: str, max_chars: int) -> str:
    tag = RULES_TAG
    text = whole_lines(defuse(rules_text.strip()), max_chars - 2 * len(tag) - 8)
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""
