"""Statements of what may be done, and of how far something is: rules, states, switches.

Owns the phrases, in English and Chinese. Always holds: a rule and its lifting are one thing, and
so are a task left open and the same task done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from recollect.facts.subjects.subject import UNTOLD, Subject, name_of
from recollect.facts.subjects.values import Token, cut
from recollect.facts.subjects.words import FILLER, GRAMMAR
from recollect.search.tokenize import tokenize


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE)


_RULES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "no need",
        _any(
            r"\bno need to\b",
            r"\b(?:do not|don't|doesn't|does not) (?:have|need) to\b",
            "不用",
            "不必",
            "无需",
        ),
    ),
    (
        "no",
        _any(
            r"\bnever\b",
            r"^no\s(?!wait|longer|need|one|idea|problem|worries|way|more)",
            (
                r"\b(?:do not|don['’]?t|must ?n['o]t|should ?n['o]?t|shall not|not allowed to"
                r"|may not)\b(?! have\b| know\b| think\b| work\b)"
            ),
            r"\b(?:avoid|stop)\b(?=\s\w+ing\b)",
            (
                r"\b(?:is|are) (?:now |still |strictly )?(?:not allowed|not ok|forbidden"
                r"|banned|prohibited|off[- ]limits)\b"
            ),
            "不要",
            "禁止",
            "严禁",
            "不准",
            "不许",
            "不得",
            "切勿",
            "避免",
            "不允许",
            "千万别",
            "^别",
            "不可以",
        ),
    ),
    (
        "yes",
        _any(
            r"\b(?:is|are) (?:now |again )?(?:fine|ok|okay|allowed|permitted|all right|alright)\b",
            r"\b(?:feel free to|free to|allowed to|it(?:['’]s| is)? (?:fine|ok|okay) to)\b",
            r"\b(?:we|you|they|i) (?:can|may)\b(?=.*\bagain\b)",
            r"\b(?:we|you|they) (?:can|may) now\b",
            "可以",
            "允许",
            "没问题",
        ),
    ),
    ("always", _any(r"\balways\b", r"\bmake sure to\b", "必须", "一定要", "务必", "总是")),
)
_RULE_WORDS: Final = GRAMMAR | {"use", "want", "like", "let", "always", "ever", "allow"}

_WORK: Final = (
    r"(?:implement|finish|complet|start|fix|resolv|merg|deploy|releas|ship|writ|done|test|migrat|"
    r"solv|review|approv|document|refactor|integrat|add|built|build|port)\w*"
)
_STATES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "open",
        _any(
            (
                rf"\b(?:is|are|was|were|has|have)?\s?(?:not|n['’]t)\s(?:yet\s|been\s"
                rf"|fully\s)*(?:{_WORK}|ready|complete|working)\b"
            ),
            rf"\b(?:has|have|is|are)n['’]t\s(?:yet\s|been\s)*{_WORK}",
            rf"\b(?:still )?needs? to (?:be )?{_WORK}",
            r"\bunimplemented\b",
            r"\bto[- ]?do\b:?",
            rf"\bstill (?:have|need) to {_WORK}",
            r"\bis (?:still )?(?:missing|pending|open)\b",
            "还没有?(?:实现|做完|完成|开始|修复|上线|部署|测试|合并|做)?",
            "尚未(?:实现|完成|开始|修复|上线|部署)?",
            "未(?:实现|完成|开始|修复|上线)",
            "没(?:做完|实现|完成|修好)",
            "待办",
            "待(?:实现|完成|修复)",
        ),
    ),
    (
        "under way",
        _any(
            r"\b(?:is |are )?(?:in progress|under ?way|half[- ]done|wip)\b",
            r"\bworking on\b",
            r"\b(?:is|are) (?:now |finally )?unblocked\b",
            r"\b(?:is|are) being \w+",
            "(?:正在|还在)(?:进行|做|实现|修复|开发)?",
            "进行中",
        ),
    ),
    (
        "blocked",
        _any(
            r"\b(?:is|are) (?:blocked|on hold|stuck|paused)\b",
            r"\b(?:is|are) waiting\b",
            r"\bwaits?\b(?= (?:on|for)\b)",
            "被?(?:卡住|阻塞|搁置)",
            "暂停",
        ),
    ),
    (
        "dropped",
        _any(
            (
                r"\b(?:is|are|was|were|been)\s(?:now\s)?(?:cancell?ed|dropped|abandoned|postponed"
                r"|deferred|deprecated|removed)\b"
            ),
            "(?:取消|放弃|推迟|废弃)",
        ),
    ),
    (
        "broken",
        _any(
            r"\b(?:is|are|was)\s(?:still\s|now\s)?(?:broken|failing|down|crashing|flaky)\b",
            (
                r"\b(?:fails?|failed|crashes|crashed)\b(?=\s*(?:$|on\b|in\b|with\b|when\b|at\b"
                r"|again\b))"
            ),
            r"\b(?:does not|doesn['’]t) work\b",
            "(?:坏了|挂了|失败|崩溃|报错|不能用)",
        ),
    ),
    (
        "done",
        _any(
            (
                r"\b(?:is|are|was|were|been|got|has been|have been)\s(?:now\s|all\s|finally\s"
                r"|already\s)?(?:done|finished|complete|completed|implemented|shipped|merged"
                r"|deployed|released|ready|landed|live|written(?! in)|fixed|resolved|solved"
                r"|passing|green|closed|working|back up)\b"
            ),
            r"\b(?:works|passes)\b(?=\s(?:now\b|.*\bagain\b)|\sagain\b)",
            (
                r"\b(?:finished|completed|implemented|fixed|resolved|shipped|merged"
                r"|solved)\b(?! (?:by|on)\b)"
            ),
            r"\bdone with\b",
            "已?经?(?:实现|做完|完成|修复|修好|上线|搞定|合并|解决|恢复|部署好|做好)了?",
        ),
    ),
)
_SWITCHES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "off",
        _any(
            r"\b(?:is|are|was|been)?\s?(?:now |currently )?(?:disabled|turned off|switched off)\b",
            r"\b(?:is|are) (?:now )?off\b",
            r"\b(?:disable|turn off|switch off)\b",
            "(?:已?经?(?:关闭|禁用|停用|关掉))了?",
        ),
    ),
    (
        "on",
        _any(
            r"\b(?:is|are|was|been)?\s?(?:now |currently )?(?:enabled|turned on|switched on)\b",
            r"\b(?:is|are) (?:now )?on$",
            r"\b(?:enable|turn on|switch on)\b",
            "(?:已?经?(?:开启|启用|打开))了?",
        ),
    ),
)
_ENDS: Final = re.compile(r"\b(?:by|until|because|due to|since)\b.*$", re.IGNORECASE)
_ENDS_OF_WAIT: Final = re.compile(r"\b(?:by|until|because|due to|since|for|on)\b.*$", re.IGNORECASE)
_TROUBLE: Final = re.compile(
    (
        r"\b(?:error|bug|crash|failure|issue|leak|outage|problem|deadlock|race)\b|问题|报错"
        r"|错误|崩溃|泄漏"
    ),
    re.IGNORECASE,
)


def rule_of(text: str) -> Subject:
    """What may or may not be done; nothing where the clause is no rule."""
    for value, phrase in _RULES:
        found = phrase.search(text)
        if found is None:
            continue
        left = f"{text[: found.start()]} {text[found.end() :]}"
        subject = name_of(_stemmed(cut(left)), leave_out=_RULE_WORDS)
        return Subject(subject=subject, attribute="rule", value=value)
    return UNTOLD


def state_of(text: str) -> Subject:
    """How far something is, or whether it is on; nothing where the clause does not say."""
    for attribute, phrases in (("switch", _SWITCHES), ("state", _STATES)):
        for value, phrase in phrases:
            found = phrase.search(text)
            if found is None:
                continue
            ends = _ENDS_OF_WAIT if value == "blocked" else _ENDS
            left = f"{text[: found.start()]} {ends.sub('', text[found.end() :])}"
            subject = name_of(cut(left))
            return Subject(subject=subject, attribute=attribute, value=value)
    return UNTOLD


def trouble_of(text: str) -> Subject:
    """A problem that is named without saying how far it is: it is open."""
    if not _TROUBLE.search(text):
        return UNTOLD
    words = FILLER | {"see", "seeing", "hit", "hitting", "get", "getting", "got"}
    return Subject(subject=name_of(cut(text), leave_out=words), attribute="state", value="open")


def _stemmed(tokens: Iterable[Token]) -> Iterable[Token]:
    """Deploy, deploys and deploying are one deed."""
    for token in tokens:
        if token.text in _RULE_WORDS:
            continue
        plain = token.kind == "word" and token.text.isascii() and token.text.isalpha()
        stems = tokenize(token.text) if plain else []
        yield replace(token, text=stems[0]) if len(stems) == 1 else token
