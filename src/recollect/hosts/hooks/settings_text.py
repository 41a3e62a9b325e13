"""Adds to and takes from a settings file of JSON without touching a byte of the rest.

Agents' settings are written by people: with comments, trailing commas, other hooks and an
indentation of their own. What is added is put in as text behind what is there, so that everything
else stays as it is; what is taken out is cut where it stands, with one comma, and with the lists
and objects that were made for it. A text that was strict JSON stays strict JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from recollect.errors import FormatError
from recollect.hosts.gateway.agents import read_configuration

_SPACE: Final = " \t\r\n\ufeff"
_CLOSING: Final = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A value in the text; of an object or array also what stands in it."""

    start: int
    end: int
    members: tuple[TextSpan, ...] = ()
    trailing_comma: bool = False
    name: str = ""
    """As a member of an object."""
    name_start: int = -1
    """Where it begins as a member: at its name, in an array at itself."""

    def member(self, name: str) -> TextSpan | None:
        """The value of a key."""
        return next((span for span in self.members if span.name == name), None)


def read_spans(text: str) -> TextSpan:
    """Where everything stands; FormatError where the text is no JSON, comments aside."""
    at = _skip(text, 0)
    span = _value(text, at)
    if _skip(text, span.end) != len(text):
        raise FormatError(f"something stands behind the end of the settings, at {span.end}")
    return span


# Putting in


def add_entries(text: str, entries: Mapping[str, Sequence[Any]]) -> str:
    """Put entries at the end of `hooks.NAME` for each name, making what is missing."""
    text = text if text.strip(_SPACE) else "{}\n"
    for name, wanted in entries.items():
        for entry in wanted:
            text = _with_entry(text, name, entry)
    return text


def _with_entry(text: str, name: str, entry: Any) -> str:
    root = read_spans(text)
    _must_be(text, root, "{", "the settings")
    hooks = root.member("hooks")
    if hooks is None:
        return _put(text, root, {"hooks": {name: [entry]}})
    _must_be(text, hooks, "{", "hooks")
    event = hooks.member(name)
    if event is None:
        return _put(text, hooks, {name: [entry]})
    _must_be(text, event, "[", f"hooks.{name}")
    return _put(text, event, entry)


def _put(text: str, into: TextSpan, what: Any) -> str:
    """One more member of an object, or item of an array, behind the last."""
    depth, unit = _indentation(text, into)
    written = json.dumps(what, indent=unit, ensure_ascii=False)
    if text[into.start] == "{":
        written = written[1:-1].strip("\n").rstrip()  # `"key": value` without its braces
        lines = [line.removeprefix(unit) for line in written.split("\n")]
    else:
        lines = written.split("\n")
    inner = unit * (depth + 1)
    body = "\n".join(inner + line for line in lines)
    if not into.members:
        at, put = into.start + 1, f"\n{body}\n{unit * depth}"
    elif into.trailing_comma:
        at, put = _skip(text, into.members[-1].end) + 1, f"\n{body},"
    else:
        at, put = into.members[-1].end, f",\n{body}"
    return text[:at] + put + text[at:]


def _indentation(text: str, span: TextSpan) -> tuple[int, str]:
    """How deep a container stands, and what one step is, by the lines of the file."""
    unit = next(
        (
            line[: len(line) - len(line.lstrip(" \t"))]
            for line in text.split("\n")
            if line[:1] in (" ", "\t") and line.strip()
        ),
        "  ",
    )
    line = text[text.rfind("\n", 0, span.start) + 1 : span.start]
    lead = line[: len(line) - len(line.lstrip(" \t"))]
    return (len(lead) // len(unit) if unit else 0), unit


# Taking out


def take_entries(text: str, is_ours: Callable[[Any], bool], before: str = "") -> str:
    """The text without the entries that are ours.

    With the last one go the lists and objects that it leaves empty, unless they stood in the text
    of before.
    """
    if not text.strip(_SPACE):
        return text
    known = read_spans(before) if before.strip(_SPACE) else None
    while (cut := _first_cut(text, is_ours, before, known)) is not None:
        text = cut
    return text


def _first_cut(
    text: str, is_ours: Callable[[Any], bool], before: str, known: TextSpan | None
) -> str | None:
    """The text without the first entry of ours; None where there is none."""
    root = read_spans(text)
    for hooks in [one for one in root.members if one.name == "hooks"]:
        for event, entry in [(of, one) for of in hooks.members for one in of.members]:
            if not is_ours(read_configuration(text[entry.start : entry.end])):
                continue
            known_hooks = known.member("hooks") if known else None
            known_event = known_hooks.member(event.name) if known_hooks else None
            levels = (
                (event, entry, known_event),
                (hooks, event, known_hooks),
                (root, hooks, known),
            )
            for container, member, was in levels:
                around = text[container.start + 1 : member.name_start]
                around += text[member.end : container.end - 1]
                if was or container is root or around.strip(_SPACE + ","):
                    return _without(text, container, member, _inside(before, was))
    return None


def _inside(before: str, known: TextSpan | None) -> str:
    """What stood in a list or object that was empty."""
    return "" if known is None or known.members else before[known.start + 1 : known.end - 1]


def _without(text: str, container: TextSpan, member: TextSpan, inside: str) -> str:
    """The text without a member and one comma beside it; comments beside it stay.

    Where nothing else is left in the container, `inside` stands there.
    """
    place, start, end = container.members.index(member), member.name_start, member.end
    following = _skip(text, end)
    if text[following] == ",":
        kept, end = _unless_blank(text[end:following]), following + 1
    else:
        kept = ""
    if place + 1 < len(container.members):
        following = container.members[place + 1].name_start
        return text[:start] + kept + _unless_blank(text[end:following]) + text[following:]
    if place == 0:
        left = text[container.start + 1 : start] + kept + text[end : container.end - 1]
        left = left if left.strip(_SPACE) else inside
        return text[: container.start + 1] + left + text[container.end - 1 :]
    comma = _skip(text, container.members[place - 1].end)
    between = text[comma + 1 : start]
    if text[end:].lstrip(" \t").startswith(("\n", "\r")):  # else a comment needs its line's end
        between = between.rstrip(_SPACE)
    return text[: comma + container.trailing_comma] + _unless_blank(between) + kept + text[end:]


def _unless_blank(text: str) -> str:
    return text if text.strip(_SPACE) else ""


# Reading


def _must_be(text: str, span: TextSpan, opening: str, what: str) -> None:
    if text[span.start] != opening:
        kind = "an object" if opening == "{" else "a list"
        raise FormatError(f"{what} is no {kind.split()[1]}: it has to be {kind}")


def _skip(text: str, at: int) -> int:
    """Past white space and comments."""
    while at < len(text):
        if text[at] in _SPACE:
            at += 1
        elif text.startswith("//", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at)
            if end < 0:
                raise FormatError(f"a comment has no end, at {at}")
            at = end + 2
        else:
            break
    return at


def _value(text: str, at: int) -> TextSpan:
    if at >= len(text):
        raise FormatError("the settings end in the middle")
    if text[at] in _CLOSING:
        return _container(text, at)
    if text[at] == '"':
        return TextSpan(at, _string_end(text, at))
    end = at
    while end < len(text) and text[end] not in ",]}/ \t\r\n":
        end += 1
    if end == at:
        raise FormatError(f"a value is missing, at {at}")
    return TextSpan(at, end)


def _container(text: str, start: int) -> TextSpan:
    closing = _CLOSING[text[start]]
    members: list[TextSpan] = []
    at, comma = _skip(text, start + 1), False
    while at < len(text) and text[at] != closing:
        name, name_start = "", at
        if closing == "}":
            if text[at] != '"':
                raise FormatError(f"a name in quotes is missing, at {at}")
            end = _string_end(text, at)
            name = str(json.loads(text[at:end]))
            at = _skip(text, end)
            if text[at : at + 1] != ":":
                raise FormatError(f"a colon is missing, at {at}")
            at = _skip(text, at + 1)
        span = _value(text, at)
        members.append(replace(span, name=name, name_start=name_start))
        at = _skip(text, span.end)
        comma = text[at : at + 1] == ","
        if comma:
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise FormatError(f"a comma or {closing} is missing, at {at}")
    if at >= len(text):
        raise FormatError("the settings end in the middle")
    return TextSpan(start, at + 1, tuple(members), trailing_comma=comma and bool(members))


def _string_end(text: str, at: int) -> int:
    end = at + 1
    while end < len(text):
        if text[end] == "\\":
            end += 2
        elif text[end] == '"':
            return end + 1
        else:
            end += 1
    raise FormatError(f"a text has no end, at {at}")
