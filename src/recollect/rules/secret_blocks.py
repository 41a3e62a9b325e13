"""Secrets known by the block they stand in: the data of a Kubernetes Secret, a key's list of bytes.

Owns what such a block looks like in YAML, JSON and code. Never masks a member's name, a template
or a reference. Always linear: every search goes forward from a literal, and what follows it is
bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recollect.rules.secret_contexts import SecretMatch, kind_of_name, places_of, secret_match
from recollect.rules.secret_triggers import held, trigger, with_triggers
from recollect.rules.secret_values import is_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

_MANIFEST_CHARS = 8_000
_SECRET_KIND = re.compile(r"kind[\"']?[ \t]{0,8}:[ \t]{0,8}[\"']?secret(?!\w)")
_DATA = re.compile(
    r"(?m)^(?P<indent>[ \t]{0,40})(?:string)?data:[ \t]*\r?\n"
    r"(?P<lines>(?:(?P=indent)[ \t]+[^\n]*(?:\n|\Z)){1,400})",
    re.IGNORECASE,
)
_MEMBER = re.compile(
    r"(?m)^[ \t]+[\w.-]{1,120}:[ \t]+(?![|>&*!{[])(?P<quote>[\"']?)"
    r"(?P<value>[^\s\"'#][^\n\"'#]{3,4000}?)"
    r"(?P=quote)[ \t]*(?:#[^\n]*)?\r?$"
)
_JSON_DATA = re.compile(
    r"\"(?:string)?data\"[ \t\n]{0,40}:[ \t\n]{0,40}\{(?P<lines>[^{}]{4,4000}+)\}", re.IGNORECASE
)
_JSON_MEMBER = re.compile(
    r"\"[\w.-]{1,120}\"[ \t\n]{0,40}:[ \t\n]{0,40}\"(?P<value>[^\"\n]{4,4000})\""
)
_SECRETS = trigger("secret")

_NAMES = with_triggers(("key", "secret", "token", "pass", "seed"))
_BYTE = r"(?:0x[0-9a-f]{1,2}+|\d{1,3}+)"
_GAP = r"[ \t\r\n]{0,12}+"
_BYTES = re.compile(
    r"[\w-]{0,24}[\"']?(?:\[\w{0,12}\])?(?:[ \t]{0,4}:[ \t]{0,4}[\w\[\]<>, ]{1,40}(?==))?"
    r"[ \t]{0,8}(?::=|=|:|=>)[ \t]{0,8}"
    r"(?:(?:new[ \t]+)?[a-z_][\w.]{0,30}[ \t]{0,2}(?:\[\w{0,12}\])?\(?)?"
    rf"[\[({{]{_GAP}(?P<value>{_BYTE}(?:{_GAP},{_GAP}{_BYTE}){{11,255}}+){_GAP},?{_GAP}[\])}}]"
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_LEAST_DISTINCT_BYTES = 8
_LARGE_BYTE, _LARGEST_BYTE = 127, 255
_MOST_NAME_CHARS = 48
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"


def find_in_blocks(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Every secret in a manifest's data, and every key written as numbers; `found` are the triggers
    in the text."""
    if found & _SECRETS and "kind" in lowered:
        yield from _find_manifests(text, lowered)
    if "[" in text or "{" in text:
        yield from _find_bytes(text, lowered, found)


def _find_manifests(text: str, lowered: str) -> Iterator[SecretMatch]:
    done = 0
    for kind in _SECRET_KIND.finditer(lowered):
        if kind.end() <= done:  # read with the one before it
            continue
        start = max(done, kind.start() - _MANIFEST_CHARS)
        start = max(start, text.rfind("\n---", start, kind.start()))
        reach = kind.end() + _MANIFEST_CHARS
        until = text.find("\n---", kind.end(), reach)
        done = until = min(len(text), reach) if until < 0 else until
        for block, member in ((_DATA, _MEMBER), (_JSON_DATA, _JSON_MEMBER)):
            for data in block.finditer(text, start, until):
                for match in member.finditer(text, *data.span("lines")):
                    if not is_reference(match["value"], quoted=True):
                        yield secret_match("manifest-secret", match, "value")


def _find_bytes(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    for name in held(_NAMES, lowered, found):
        for at in places_of(lowered, name):
            match = _BYTES.match(lowered, at + len(name))
            if (
                match is not None
                and _names_key(text, at + len(name))
                and _is_random(match["value"])
            ):
                yield secret_match("key-bytes", match, "value")


def _names_key(text: str, end: int) -> bool:
    """Whether the name that runs up to there, and on, is a key's: `key` alone, too."""
    lead = text[max(0, end - _MOST_NAME_CHARS) : end]
    name = lead[len(lead.rstrip(_NAME_CHARS)) :]
    tail = text[end : end + _MOST_NAME_CHARS]
    name += tail[: len(tail) - len(tail.lstrip(_NAME_CHARS))]
    return name.lower() == "key" or kind_of_name(name) in ("token", "password")


def _is_random(numbers: str) -> bool:
    """Whether these bytes are no list of sizes or codes: spread over all values, in no order."""
    values = [int(one, 0) if one.startswith("0x") else int(one) for one in _NUMBER.findall(numbers)]
    if max(values) > _LARGEST_BYTE:
        return False
    large = sum(value > _LARGE_BYTE for value in values)
    ordered = sorted(values) in (values, values[::-1])
    return len(set(values)) >= _LEAST_DISTINCT_BYTES and 4 * large >= len(values) and not ordered
