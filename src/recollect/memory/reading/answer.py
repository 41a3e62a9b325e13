"""Reads what a model answered to the extraction prompt, also where it is not what was asked for.

Owns how much of an answer counts: every object that is whole and of the right shape, whatever
stands around it or was cut off behind it. Must never raise for what a model wrote, nor quote it.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from recollect.values.fact import EXTRACTED_TYPES, FactType
from recollect.values.model import Answer

_TEXTS: Final = ("quote", "type", "content", "subject", "attribute")
_MOST_OBJECTS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement as the model made it, not checked yet."""

    line: int
    quote: str = field(repr=False)
    type: FactType
    content: str = field(repr=False)
    subject: str = field(repr=False)
    attribute: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What could be read of an answer, and what is wrong with the rest."""

    claims: tuple[Claim, ...]
    malformed: int
    """Objects that are not of the shape that was asked for."""
    trouble: str = ""
    """Why there may be less than the model meant to say; empty where nothing is wrong."""


def read_claims(answer: Answer, most: int) -> Claims:
    """The statements of an answer, at most so many."""
    whole, objects = _objects(answer.text)
    claims = [_claim(one) for one in objects]
    trouble = ""
    if answer.stop == "refusal":
        trouble = "the model refused"
    elif answer.stop == "length":
        trouble = "the model's answer was cut off"
    elif not whole:
        trouble = "the model's answer was not the JSON that was asked for"
    read = [one for one in claims if one is not None]
    return Claims(claims=tuple(read[:most]), malformed=len(claims) - len(read), trouble=trouble)


def _objects(text: str) -> tuple[bool, list[Mapping[str, Any]]]:
    """The facts of an answer, and whether all of it could be read."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False, list(_found(text))
    facts = value.get("facts") if isinstance(value, dict) else value
    if not isinstance(facts, list):
        return False, []
    return True, [one for one in facts if isinstance(one, dict)]


def _found(text: str) -> Iterator[Mapping[str, Any]]:
    """The whole objects in a text that is not JSON, or not to its end."""
    decoder = json.JSONDecoder()
    at = max(text.find("["), 0)
    for _ in range(_MOST_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(value, dict):
            yield value


def _claim(given: Mapping[str, Any]) -> Claim | None:
    line = given.get("line")
    texts = {name: given.get(name, "") for name in _TEXTS}
    if not isinstance(line, int):
        return None
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    if texts["type"] not in EXTRACTED_TYPES or not texts["quote"] or not texts["content"]:
        return None
    return Claim(
        line=line,
        quote=texts["quote"],
        type=cast(FactType, texts["type"]),
        content=" ".join(texts["content"].split()),
        subject=" ".join(texts["subject"].split()),
        attribute=" ".join(texts["attribute"].split()),
    )
