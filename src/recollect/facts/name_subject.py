"""Names what a statement is about, which property it states, and the value it gives it.

Two statements of one thing meet in subject and attribute: "the staging API listens on port 8443"
and "staging 的 API 端口改成 9000". Owns the order in which kinds of statement are looked for; the
phrases stand in `subject_*`. Must never guess: a question, a condition, a list, two values of a
kind, or a phrase that is not known give no subject, and no subject never meets another. Always
holds: pure, in time linear in the statement, the same in every process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from unicodedata import normalize

from recollect.facts.subjects.choices import choice_of, owner_of
from recollect.facts.subjects.properties import property_of
from recollect.facts.subjects.states import rule_of, state_of, trouble_of
from recollect.facts.subjects.subject import UNTOLD, Subject
from recollect.facts.subjects.tastes import user_of

if TYPE_CHECKING:
    from recollect.values.fact import FactType

__all__ = ["Subject", "name_clauses", "name_subject"]


_MOST_CHARS: Final = 400
"""A longer text is not one statement."""
_CACHED: Final = 4096
"""The same facts are candidates again and again."""
_LEAD_INS: Final = re.compile(
    r"^(?:(?:please\s)?(?:remember|note|keep in mind|don['’]?t forget)(?:\s(?:that|this))?"
    r"|fyi|btw|by the way|"
    r"actually|for the record|from now on|going forward|as of (?:today|now)|right now|turns out|"
    r"we(?:'ve| have)? (?:decided|agreed) that|it turns out(?: that)?|the decision is|"
    r"(?:sorry|correction|update|decision|no|wait|oh|ah|hmm|ok(?:ay)?|well|to be clear"
    r"|important|heads[- ]up|"
    r"so|and|but|also|my mistake|(?:my |the )?apologies|scratch that|i was wrong|i misspoke|oops|"
    r"change of plans?|new decision|quick update|good news|bad news)(?=\s?[,:;!.—-])|"
    r"请?(?:记住|记一下|注意)|更正(?:一下)?|其实|抱歉|对不起|不好意思|不对|说错了|我说错了"
    r"|从现在(?:起|开始)|以后|"
    r"另外|顺便说一下|补充一下|改一下|更新(?:一下)?(?=[:,，]))"
    r"(?:[\s,:;!.，：；！。—-]+|(?<=[\u4e00-\u9fff]))",
    re.IGNORECASE,
)
_UNSURE: Final = re.compile(
    r"[?？]|\b(?:if|unless|maybe|perhaps|might|probably|what about|should we|could we|considering|"
    r"thinking about|suppose|imagine|wonder|whether|for example|e\.g)\b|"
    r"如果|假如|要是|也许|可能|大概|是否|要不要|是不是|吗|例如|比如",
    re.IGNORECASE,
)
_TAILS: Final = re.compile(
    r"\s*(?:\([^)]{0,200}\)|（[^）]{0,200}）)"
    r"|[\s,;，；]+(?:because|since|so that|which|due to|as it|in order to|thanks to"
    r"|until further)\b.*$"
    r"|[,，;；\s]*(?:因为|由于|以便|所以|因此).*$"
    r"|\s(?:now|from now on|going forward|for now|anymore|any more|these days|instead|as of \w+|"
    r"please|already|today)(?=\s*(?:[,.!;]|$))",
    re.IGNORECASE | re.DOTALL,
)
_ONE: Final = r"[^\s,，;；。]{1,40}"
_REJECTED: Final = re.compile(
    rf"[,，]\s?(?:and\s)?(?:not|no longer)\s(?:on\s|the\s|at\s"
    rf"|to\s)?{_ONE}(?:\s{_ONE})?\s*(?=[,.，。]|$)"
    rf"|\s(?:not|no longer)\s(?:on\s|at\s)?[\d`/$]{_ONE}\s*(?=[,.，。]|$)"
    rf"|\s(?:instead of|rather than|in place of)\s(?:the\s)?{_ONE}"
    rf"|[,，\s]*(?:而不是|不再是|不是)[^,，。是]{{1,20}}(?=[,，。]|$)"
    rf"|[,，\s]+(?:was|formerly|previously|used to be)\s(?:on\s)?{_ONE}\s*(?=[,.]|$)"
    rf"|\sfrom\s(?:the\s)?{_ONE}(?:\s{_ONE}){{0,2}}(?=\sto\s)"
    rf"|从\s?[^,，。]{{1,20}}?(?=(?:改|换|升级|迁移|迁|切换|切|调整|调|升|降|挪)[到成为])",
    re.IGNORECASE,
)
_REWORDED: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern, re.IGNORECASE), word)
    for pattern, word in (
        (r"\btim(?:es|e|ed|ing) out\b", "timeout"),
        (r"\bexpir(?:e|es|ed|ing)\b", "ttl"),
        (r"过期(?!时间)", "有效期"),
        (r"\b(?:are|is|be) (?:kept|retained)(?= for\b)", "retention"),
        (r"\b(?:at most|up to|no more than|not exceed|no larger than|must stay under)\b", "limit"),
        (r"不得?超过|至多", "最多"),
        (r"\b(?:every (?:two|2) weeks|fortnightly)\b", "biweekly"),
        (r"\bevery (?:second|other)\b", "biweekly"),
        (r"\bevery (?:single )?day\b", "daily"),
        (r"\bevery night\b", "nightly"),
        (r"\bevery (?:week)\b", "weekly"),
        (r"\bevery month\b", "monthly"),
        (r"\bevery hour\b", "hourly"),
        (r"\bevery(?= \d+ ?\w)", "interval"),
        (r"每(?=隔?\d)", "间隔"),
        (r"\b(we|i|you|they|it|he|she|that|there)['’](?:re|ll|d|ve|m|s)\b", r"\1"),
        (r"(?:下午|晚上)\s?(\d{1,2})\s?点", r"\1pm "),
        (r"(?:上午|早上|凌晨)\s?(\d{1,2})\s?点", r"\1am "),
        (r"\bcosts?(?= (?:us )?[$€£¥\d])", "price"),
        (r"\b(?:allows|permits)(?= \d)", "limit"),
        (r"\b(?:is|are) retried(?= \w+ times\b)", "retries"),
        (r"(?<=\d) times\b", ""),
        (r"\btime zone\b", "timezone"),
        (r"\bfront end\b", "frontend"),
        (r"\bback end\b", "backend"),
        (r"\b(?:vs code|visual studio code)\b", "vscode"),
        (r"\b(single|double) quotes?\b", r"\1-quote"),
        (r"\bgithub actions\b", "github-actions"),
        (r"\bgitlab ci\b", "gitlab-ci"),
        (r"\bbatch size\b", "batch-size"),
    )
)
_CHINESE_MARKS: Final = re.compile("[，；！]")
"""Normalised, they are ASCII marks, which end a clause only before a space."""
_SCOPE: Final = re.compile(
    r"^((?:in|on|for|at|under|with|inside|within)\s[^,;.]{1,40}"
    r"|[^,;。]{1,16}(?:里|上|中|下|内|环境|这边|那边|这块|那块|方面|的话)),\s",
    re.IGNORECASE,
)
"""Where or of what the rest holds: without it two environments are one."""
_CLAUSES: Final = re.compile(r"(?:[,;.!]\s+|[，；。！\n]+)|[,;.!]+$")


@lru_cache(maxsize=_CACHED)
def name_subject(content: str, type: FactType) -> Subject:  # noqa: A002
    """The subject, the attribute and the value of one statement; empty where code cannot tell."""
    told = name_clauses(content, type)
    named = [found for found in told if found.told]
    if len({(found.subject, found.attribute) for found in named}) > 1:
        return UNTOLD
    return named[0] if named else (told[0] if told else UNTOLD)


def name_clauses(content: str, type: FactType) -> tuple[Subject, ...]:  # noqa: A002
    """What each clause of a statement is about, where code can tell; some have no subject."""
    text = " ".join(normalize("NFKC", _CHINESE_MARKS.sub(r"\g<0> ", content)).split())
    if len(text) > _MOST_CHARS or type == "digest":
        return ()
    while (lead := _LEAD_INS.match(text)) is not None and lead.end() < len(text):
        text = text[lead.end() :]
    if _UNSURE.search(text):
        return ()
    text = _SCOPE.sub(r"\1 ", " ".join(_REJECTED.sub(" ", text).split()))
    for pattern, word in _REWORDED:
        text = pattern.sub(word, text)
    clauses = [_without_tail(clause) for clause in _CLAUSES.split(_TAILS.sub("", text))]
    found = [_of_clause(clause, type) for clause in clauses if clause]
    return tuple(one for one in found if one != UNTOLD)


def _without_tail(clause: str) -> str:
    while (shorter := _TAILS.sub("", clause).strip()) != clause:
        clause = shorter
    return clause.strip(" .!,;:，。！")


def _of_clause(clause: str, type: FactType) -> Subject:  # noqa: A002
    clause = clause if (lead := _LEAD_INS.match(clause)) is None else clause[lead.end() :]
    looks: list[Callable[[str], Subject]] = [user_of, rule_of, property_of, owner_of, choice_of]
    looks.insert(1 if type == "task_state" else len(looks), state_of)
    if type == "issue":
        looks.append(trouble_of)
    for look in looks:
        found = look(clause)
        if found != UNTOLD:
            return found
    return UNTOLD
