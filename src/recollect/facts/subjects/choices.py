"""Statements of what is used for what, and who answers for it: choices and owners.

Owns which things exclude each other: of databases for one purpose there is one, of libraries in
one program there are many. Must never let two choices meet that can both hold.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.facts.subjects.kinds import kind_of, value_of
from recollect.facts.subjects.subject import UNTOLD, Subject, name_of
from recollect.facts.subjects.values import Token, cut
from recollect.facts.subjects.words import FILLER, listed

ALONE: Final = frozenset(
    {
        "database",
        "queue",
        "package manager",
        "api style",
        "cloud",
        "ci",
        "front-end framework",
        "bundler",
        "test framework",
        "orchestrator",
        "editor",
        "indentation",
    }
)
"""Kinds of which a project has one, so that a choice needs no purpose to be told apart."""
_COMPONENTS: Final = listed(
    """
    service api gateway back-end front-end app application server client worker workers
    module library website site cli pipeline job image test testing development debugging
    production staging everything code program system stack deploy deployment build
    """
)
"""Things that are made of many: one of each kind of thing is used in them."""

_USE: Final = (
    r"(?:use|using|adopt(?:ed)?|go(?:ing)? with|went with|stick(?:ing)? (?:with|to)|pick(?:ed)?|"
    r"choose|chose|chosen|switch(?:ed|ing)? (?:over )?to|mov(?:e|ed|ing) to|migrat(?:e|ed|ing) to|"
    r"standardi[sz]ed? on|settled? on|decided on|replaced? it with|run|host(?:ing)? on"
    r"|deploy(?:ing)? (?:on|to))"
)
_MADE: Final = (
    "hashed|signed|encrypted|made|tested|compiled|packaged|deployed|formatted|linted|monitored|"
    "validated|generated|parsed|compressed|secured|protected|logged|exported|stored|cached"
)
_TALKS: Final = (
    "communicate|talk|connect|sync|authenticate|log in|deploy|integrate|exchange|notify|speak"
)
_A: Final = r"(?P<a>[^,，;；。]{1,60}?)"
_B: Final = r"(?P<b>[^,，;；。:]{1,80}?)"
_CHOICES: Final[tuple[re.Pattern[str], ...]] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_USE}\s{_A}\s(?:for|as)\s(?:the\s|our\s)?{_B}$",
        rf"\b(?:switch|mov|migrat|chang|port)(?:e|ed|ing)?\s{_B}\s(?:over\s)?to\s(?:use\s)?{_A}$",
        r"^(?P<b>.{1,80}?)\s(?:is|are)\s(?:now\s)?(?:called|named)\s(?P<a>[^,]{1,60})$",
        (
            rf"^{_B}\s(?:now\s|will\s|should\s|must\s)?(?:uses?|runs? on|is using|(?:is|are"
            rf"|will be) (?:built|based|"
            rf"running|hosted) (?:with|on)|(?:is|are|will be) (?:backed by|written in|stored in"
            rf"|going to use)|"
            rf"(?:moved|switched|migrated|go(?:es)?|went|(?:is|are) (?:sent|shipped|written)) to|"
            rf"(?:is|are) (?:served|loaded|pulled|fetched) from)\s{_A}$"
        ),
        (
            rf"^(?P<b>[^,，;；。:]{{1,80}}?\s(?:is|are|will\sbe)\s(?:{_MADE}))"
            rf"\s(?:with|via|using)\s{_A}$"
        ),
        (
            rf"^(?P<b>[^,，;；。:]{{1,60}}?\s(?:{_TALKS})s?(?:\s(?:to|with)\s\S+)?)"
            rf"\s(?:via|over|through|using)\s{_A}$"
        ),
        rf"^{_B}\s(?:now\s)?(?:live|lives)\sin\s{_A}$",
        rf"^for\s{_B}[,\s]\s?(?:we\s|i\s)?(?:\S+\s){{0,3}}?{_USE}\s{_A}$",
        (
            rf"(?:用|使用|采用|选择|选用)(?!户){_A}(?:作为|来做|做|当|来?写|来?开发|来?实现"
            rf"|来?存储?){_B}$"
        ),
        (
            rf"^{_B}(?:改用|使用|采用|选用|选择|换成|换到|改成|改为|切换到|切到|迁移到|迁到"
            rf"|决定用|选定|选|定为|确定为|(?<![试费作应利不常通专])用(?!户|例|量|途|法|期|过|完|得|于)){_A}(?:了|吧)?$"
        ),
    )
)
_ALONE_CHOICE: Final = re.compile(
    rf"(?:\b{_USE}\s|(?:改用|使用|采用|选用|换成|决定用|用)){_A}(?:了|吧)?$", re.I
)
_CALLED: Final = re.compile(r"\b(?:called|named)\b", re.IGNORECASE)
_SEVERAL: Final = re.compile(r"\b(?:and|or|both|either)\b|[、,/&]|和|或|以及", re.IGNORECASE)

_OWNED: Final[tuple[re.Pattern[str], ...]] = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        (
            r"^(?P<b>.{1,80}?)\s(?:is|are|will\sbe)\s(?:now\s)?(?:owned|maintained|handled|led"
            r"|managed)\sby\s(?P<a>[\w .@-]{1,40})$"
        ),
        r"^(?P<b>.{1,80}?)\s(?:is|are)\s(?:now\s)?assigned\sto\s(?P<a>[\w .@-]{1,40})$",
        (
            r"^(?P<a>[\w.@-]{1,30}(?:\s(?:team|[A-Z]\w+))?)\s(?:now\s)?(?:owns|maintains|leads"
            r"|is\s(?:now\s)?(?:responsible\sfor|in\scharge\sof)|takes\s(?:care\sof"
            r"|over))\s(?P<b>.{1,80})$"
        ),
        r"^(?P<b>.{1,60}?)(?:现在|改)?由\s?(?P<a>\w{1,20}?)\s?(?:来)?(?:负责|维护)",
        r"^(?P<a>\w{1,12}?)\s?(?:现在)?负责(?!人)(?P<b>.{1,40})$",
    )
)


def choice_of(text: str) -> Subject:
    """What was chosen for what; nothing where both could hold beside another choice."""
    for phrase in _CHOICES:
        for found in phrase.finditer(text):
            value, about = value_of(found["a"]), cut(found["b"])
            subject = name_of(about)
            if not value or not subject or _SEVERAL.search(found["a"]):
                continue
            kind = kind_of(found["a"])
            if _CALLED.search(found[0]):
                return Subject(subject=subject, attribute="name", value=value)
            if "written in" in found[0].casefold():
                return Subject(subject=subject, attribute="language", value=value)
            if _head(about) not in _COMPONENTS:
                return Subject(subject=subject, attribute="choice", value=value)
            return Subject(subject=subject, attribute=kind, value=value) if kind else UNTOLD
    found_alone = _ALONE_CHOICE.search(text)
    if found_alone is None or _SEVERAL.search(found_alone["a"]):
        return UNTOLD
    kind = kind_of(found_alone["a"])
    if kind not in ALONE or name_of(cut(text[: found_alone.start()])):
        return UNTOLD
    return Subject(subject=kind, attribute="choice", value=value_of(found_alone["a"]))


def _head(about: list[Token]) -> str:
    """The noun that the words before it describe: an image store is a store."""
    return next((token.text for token in reversed(about) if token.text not in FILLER), "")


def owner_of(text: str) -> Subject:
    """Who answers for what."""
    for phrase in _OWNED:
        found = phrase.search(text)
        if found is not None:
            return Subject(
                subject=name_of(cut(found["b"])),
                attribute="owner",
                value=value_of(found["a"]),
            )
    return UNTOLD
