"""Names what a statement is about, which property it states, and the value it gives it.

Two statements of one thing meet in subject and attribute: "the staging API listens on port 8443"
and "staging 的 API 端口改成 9000". Must never guess: a question, a condition, a list, two values of
a kind, or a phrase that is not known give no subject, and no subject never meets another. What
always holds: pure, in time linear in the statement; two statements of one thing give the same
subject whatever the order of their words, because a subject is its distinguishing words, sorted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final
from unicodedata import normalize

from recollect.facts.tokens import FILLER, GRAMMAR, Token, cut, table
from recollect.facts.wording import LEAD_INS, simplified
from recollect.search.tokenize import tokenize
from recollect.values.fact import FactType

_MOST_CHARS: Final = 400
"""A longer text is not one statement."""
_MOST_WORDS: Final = 8
"""A longer subject is a story, and no other statement tells it in the same words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a statement is about; empty strings where code cannot tell."""

    subject: str = field(default="", repr=False)
    attribute: str = field(default="", repr=False)
    value: str = field(default="", repr=False)

    @property
    def told(self) -> bool:
        """Whether code can tell what it is about: only then does it meet another statement."""
        return bool(self.subject and self.attribute)


UNTOLD: Final = Subject()
_CANNOT_TELL: Final = Subject()
"""A property with several values: no other way of reading is tried."""


# Properties that are known by their nouns.
_PROPERTIES: Final = table(
    """number: port replicas retries workers threads concurrency id
    duration/number: timeout ttl retention interval
    number/size/duration/percent/money: quota threshold limit
    percent/number/money: coverage rate; money/number/size: budget price
    size/number: memory size; date/weekday/time: deadline; version/number: version; email: email
    host/url: host; path: path; url/host: url; region/name: region; host/url/name: registry
    name: branch level time-zone format language license bucket owner name channel namespace"""
)
"""Nouns that name a property, with the kinds of value it takes, the surest first. The first one in
a statement is its attribute, whatever the order of the words; the others stay with the subject."""
_IMPLIED_BY: Final = {"size": "size", "duration": "time", "version": "version", "money": "dollar"}
"""What a value says by itself: "upload size limit 10 MB" is the "upload limit 10 MB"."""
_COMPONENT_LINES: Final = """
service api gateway backend frontend back-end front-end app server client worker module library
website cli pipeline job image test testing production staging everything code system 前端 后端
网关 服务 应用
"""
_COMPONENTS: Final = frozenset(_COMPONENT_LINES.split())
"""Things that are made of many: naming one thing that they use does not exclude another."""

# Clauses.
_UNSURE: Final = re.compile(
    r"[?？]|\b(?:if|unless|maybe|perhaps|might|probably|what about|(?:should|could) we|considering"
    r"|thinking about|suppose|imagine|wonder|whether|for example)\b|如果|假如|要是|也许|可能|大概"
    r"|是否|要不要|是不是|吗|例如|比如",
    re.IGNORECASE,
)
_LEADS: Final = re.compile(
    r"(?:from now on|going forward|as of (?:today|now)|从现在(?:起|开始)|以后)[,，\s]*",
    re.IGNORECASE,
)
_TAILS: Final = re.compile(
    r"\s*(?:\([^)]{0,200}\)|（[^）]{0,200}）)|[,，;；\s]*(?:因为|由于|所以).*$"
    r"|[\s,;，；]+(?:because|since|so that|which|due to|as it|in order to|until further)\b.*$"
    r"|\s(?:now|from now on|going forward|any ?more|instead|please|already|today)(?=\s*(?:[,.!;]"
    r"|$))",
    re.IGNORECASE | re.DOTALL,
)
_ONE: Final = r"[^\s,，;；。]{1,40}"
_REJECTED: Final = re.compile(
    rf"[,，]\s?(?:and\s)?(?:not|no longer)\s(?:on\s|the\s|at\s)?{_ONE}(?:\s{_ONE})?\s*(?=[,.，。]"
    rf"|$)|\s(?:instead of|rather than|in place of)\s(?:the\s)?{_ONE}"
    rf"|\sfrom\s(?:the\s)?{_ONE}(?:\s{_ONE}){{0,2}}(?=\sto\s)|[,，\s]*(?:而不是|不再是"
    rf"|不是)[^,，。是]{{1,20}}(?=[,，。]|$)|从\s?[^,，。]{{1,20}}?(?=(?:改|换|升级|迁移|迁|切换"
    rf"|切|调整|调|升|降)[到成为])",
    re.IGNORECASE,
)
"""The value that is said not to hold."""
_REWORDED: Final = {
    re.compile(rf"\b{pattern}", re.IGNORECASE): word
    for pattern, word in (
        (r"my(?= \w)", "user"),
        (r"tim(?:es|e|ed|ing) out\b", "timeout"),
        (r"expir(?:e|es|ed|ing)\b", "ttl"),
        (r"(?:are|is|be) (?:kept|retained)(?= for\b)", "retention"),
        (r"(?:at most|up to|no more than)\b", "limit"),
        (r"every (?:single )?day\b", "daily"),
        (r"every (hour|week|month|night)\b", r"\1ly"),
        (r"every(?= \d+ ?\w)", "interval"),
        (r"(we|i|you|they|it|he|she|that|there)['’](?:re|ll|d|ve|m|s)\b", r"\1"),
    )
}
_SCOPE: Final = re.compile(
    r"^((?:in|on|for|at|under|with|within)\s[^,;.]{1,40}|[^,;。]{1,16}(?:里|上|中|内|环境|这边"
    r"|那边)),\s",
    re.IGNORECASE,
)
"""Where or of what the rest holds: without it two environments are one."""
_CLAUSES: Final = re.compile(r"(?:[,;.!]\s+|[，；。！\n]+)|[,;.!]+$")


@lru_cache(maxsize=4096)  # the same facts are candidates again and again
def name_subject(content: str, type: FactType) -> Subject:  # noqa: A002
    """The subject, the attribute and the value of one statement; empty where code cannot tell."""
    subjects = name_clauses(content, type)
    named = [subject for subject in subjects if subject.told]
    if len({(subject.subject, subject.attribute) for subject in named}) > 1:
        return UNTOLD
    return named[0] if named else (subjects[0] if subjects else UNTOLD)


@lru_cache(maxsize=4096)
def name_clauses(content: str, type: FactType) -> tuple[Subject, ...]:  # noqa: A002
    """What each clause of a statement is about, where code can tell; some have no subject."""
    text = simplified(normalize("NFKC", re.sub("[，；！]", r"\g<0> ", content)))
    text = " ".join(text.split())
    if len(text) > _MOST_CHARS or type == "digest":
        return ()
    text = _without_leads(text)
    if _UNSURE.search(text):
        return ()
    text = _SCOPE.sub(r"\1 ", " ".join(_REJECTED.sub(" ", text).split()))
    for pattern, word in _REWORDED.items():
        text = pattern.sub(word, text)
    subjects = [
        _of_clause(clause, type) for clause in _CLAUSES.split(_TAILS.sub("", text)) if clause
    ]
    return tuple(subject for subject in subjects if subject != UNTOLD)


def _without_leads(text: str) -> str:
    while (lead := LEAD_INS.match(text) or _LEADS.match(text)) and lead.end() < len(text):
        text = text[lead.end() :]
    return text


def _of_clause(clause: str, type: FactType) -> Subject:  # noqa: A002
    while (shorter := _TAILS.sub("", clause).strip()) != clause:
        clause = shorter
    clause = _without_leads(clause.strip(" .!,;:，。！"))
    looks = [_preference_of, _rule_of, _property_of, _owner_of, _choice_of]
    looks.insert(1 if type == "task_state" else len(looks), _state_of)
    return next((subject for look in looks if (subject := look(clause)) != UNTOLD), UNTOLD)


def _name_of(tokens: Iterable[Token], *, leave_out: Collection[str] = FILLER) -> str:
    """The words that tell a subject apart, sorted; empty where there are none, or too many."""
    kept = [token for token in tokens if token.text not in leave_out]
    chinese = "".join(token.text for token in kept if not token.text.isascii())
    words = {token.text for token in kept if token.text.isascii()} | {chinese} - {""}
    named = chinese or any(token.kind in ("word", "name", "weekday", "host") for token in kept)
    return " ".join(sorted(words)) if named and len(words) <= _MOST_WORDS else ""


def _value_of(text: str) -> str:
    """What is said in a few words, normalised; empty where it takes more."""
    words = [token.text for token in cut(text) if token.text not in GRAMMAR]
    return " ".join(words) if len(words) <= 4 else ""


# Properties.
_LINK_BEFORE: Final = re.compile(
    r"(?:\b(?:is|are|be|to|at|on|of|as|in|under|port|version|than|limit|for|after)(?:\s+(?:now"
    r"|only))?|[=:≤<]|[是为到成至用在于多限听])[\s`\"']*$",
    re.IGNORECASE,
)
_LINK: Final = re.compile(
    r"\s(?:is|are|was|be|to|as|called|named)(?:\s+now)?\s|\s?[=:]\s?|(?:改|换|调|变"
    r"|设)?[是为成到叫用]",
    re.IGNORECASE,
)
_SETTING: Final = re.compile(r"^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$|^[a-z]\w*(?:[._][a-z]\w*)+$|^`.+`$")
_LISTENS: Final = re.compile(
    r"\b(?:listen|bind|expos|run|serv|reachable|available|answer)\w*\b.*\bon\b|\b(?:is|are"
    r"|moved)\s(?:\w+\s)?(?:on|to)\b|监听|跑在|运行在",
    re.IGNORECASE,
)
_PLACED: Final = re.compile(
    r"\b(?:is|are|be|lives?|stored|kept|found|moved?|goes|go|put|saved|written|points?|set|to|use"
    r"|runs?|happens?|scheduled|starts?|ends?|fires|changed|ships?)\b|[=:]|[在是放存到成为每]",
    re.IGNORECASE,
)
_VERSIONED: Final = re.compile(
    r"\b(?:use[sd]?|using|on|to|runs?|requires?|is|are)\s(?:\w+\s)?$|(?:升级到|用|在)\s?$"
)
_COPULA: Final = re.compile(r"\b(?:is|are)\b", re.IGNORECASE)
"""The weather is nice on Monday: what stands behind it is no appointment."""
_OF_A_NOUN: Final = re.compile(r"\s(?!(?:at|on|in|and|from|\w{3,6}days?)\b)[a-z]", re.IGNORECASE)
"""The weekly sync is one thing, the daily sync is another; neither is when it takes place."""
_PAST: Final = re.compile(
    r"\b(?!need|move|schedule|plan|deploy|locate|store|publish|host|cache|pin)\w{3,}ed\b"
    r"|\bthere (?:is|are)\b"
)
"""Something was done at a place or time, or is one of several there."""


def _property_of(text: str) -> Subject:
    """The property that a clause gives a value, by its noun, its verb, or the value's kind."""
    tokens = cut(text)
    for find in (_by_setting, _by_noun, _by_version, _by_port, _by_place, _by_schedule):
        subject = find(text, tokens)
        if subject is _CANNOT_TELL:
            return UNTOLD
        if subject != UNTOLD:
            return subject
    return UNTOLD


def _by_setting(text: str, tokens: Sequence[Token]) -> Subject:
    """ "Set MAX_RETRIES to 5", "`pool.size` is 20"."""
    names = [token for token in tokens if _SETTING.match(token.written)]
    link = _LINK.search(text, names[0].end) if names else None
    if link is None or names[0].kind not in ("word", "name"):
        return UNTOLD
    value = [token for token in tokens if token.start >= link.end() and token.text not in FILLER]
    left = [token for token in tokens if token.end <= link.start()]
    if len(value) != 1:
        return UNTOLD
    return Subject(subject=_name_of(left), attribute="value", value=value[0].text)


def _by_noun(text: str, tokens: Sequence[Token]) -> Subject:
    words = {token.text: token for token in tokens if token.kind == "word"}
    for name in (name for name in _PROPERTIES if name in words):
        kinds = _PROPERTIES[name].split("/")
        values = [token for token in tokens if token.kind in kinds]
        value = _meant(text, values, words[name])
        if value is None and values:
            return _CANNOT_TELL
        if value is not None and _state_follows(text, value.end):
            return UNTOLD
        if value is not None:
            left = [token for token in tokens if token is not value and token.text != name]
            subject = _name_of(left, leave_out=FILLER | {_IMPLIED_BY.get(value.kind, "")})
            return Subject(subject=subject, attribute=name, value=value.text)
        if "name" in kinds:
            return _by_name(text, tokens, words[name])
    return UNTOLD


def _state_follows(text: str, end: int) -> bool:
    """ "Version 2.3 is broken" says how version 2.3 is, not which version something has."""
    states = (phrase.search(text, end) for phrase in _STATES.values())
    return any(match is not None and match.start() <= end + 1 for match in states)


def _meant(text: str, values: Sequence[Token], noun: Token) -> Token | None:
    """The value that is stated: the only one, the only one after a link, or before the noun."""
    if len(values) == 1:
        return values[0]
    linked = [value for value in values if _LINK_BEFORE.search(text[: value.start])]
    if len(linked) != 1:
        linked = [value for value in values if text[value.end : noun.start].strip("`") == " "]
    return linked[0] if len(linked) == 1 else None


def _by_name(text: str, tokens: Sequence[Token], noun: Token) -> Subject:
    """ "The default branch is develop", "develop is the default branch"."""
    after = _LINK.search(text, noun.end)
    link = after or _LINK.search(text, 0, noun.start)
    if link is None:
        return UNTOLD
    behind = [token for token in tokens if token.start >= link.end() and token is not noun]
    ahead = [token for token in tokens if token.end <= link.start() and token is not noun]
    value, rest = (behind, ahead) if after else (ahead, behind)
    texts = [token.text for token in value if token.text not in FILLER]
    if not 1 <= len(texts) <= 3:
        return UNTOLD
    return Subject(subject=_name_of(rest), attribute=noun.text, value=" ".join(texts))


def _by_version(text: str, tokens: Sequence[Token]) -> Subject:
    """ "We use Node 20": a name that begins with a capital, and a number directly behind it."""
    for before, token in pairwise(tokens):
        named = before.kind == "word" and before.written[:1].isupper()
        beside = token.kind in ("version", "number") and text[before.end : token.start] == " "
        if not (named and beside):
            continue
        if not _VERSIONED.search(text[: before.start]) or "for" in text[token.end :].split():
            return UNTOLD
        left = [other for other in tokens if other is not token]
        return Subject(subject=_name_of(left), attribute="version", value=token.text)
    return UNTOLD


def _by_port(text: str, tokens: Sequence[Token]) -> Subject:
    numbers = [token for token in tokens if token.kind == "number" and token.text.isdigit()]
    ports = [other for other in numbers if ":" in other.written or 1000 <= int(other.text) <= 65535]
    if len(ports) != 1:
        return UNTOLD
    linked = _LISTENS.search(text) and _LINK_BEFORE.search(text[: ports[0].start])
    if ":" not in ports[0].written and not linked:
        return UNTOLD
    left = [token for token in tokens if token is not ports[0]]
    return Subject(subject=_name_of(left), attribute="port", value=ports[0].text)


def _by_place(text: str, tokens: Sequence[Token]) -> Subject:
    places = [token for token in tokens if token.kind in ("path", "url", "host", "region")]
    if len(places) != 1 or not _PLACED.search(text) or _PAST.search(text):
        return UNTOLD
    left = [token for token in tokens if token is not places[0]]
    subject = _name_of(left, leave_out=FILLER | {"url", "path", "endpoint", "host", "link", "file"})
    return Subject(subject=subject, attribute=places[0].kind, value=places[0].text)


def _by_schedule(text: str, tokens: Sequence[Token]) -> Subject:
    whens = [
        token
        for token in tokens
        if token.kind in ("weekday", "time", "often", "date")
        and not (token.kind == "often" and _OF_A_NOUN.match(text, token.end))
    ]
    linked = bool(whens) and _PLACED.search(text[: whens[0].start])
    if not linked or sum(token.kind == "time" for token in whens) > 1 or _PAST.search(text):
        return UNTOLD
    copula = _COPULA.search(text, 0, whens[0].start)
    between = cut(text[copula.end() : whens[0].start]) if copula else []
    if between and between[0].text not in FILLER:
        return UNTOLD
    left = [token for token in tokens if token not in whens]
    attribute = "date" if all(token.kind == "date" for token in whens) else "schedule"
    value = " ".join(sorted(token.text for token in whens))
    return Subject(subject=_name_of(left), attribute=attribute, value=value)


# Choices, owners, rules, states and likings.
_USE: Final = (
    r"(?:use|using|adopt(?:ed)?|go(?:ing)? with|went with|stick(?:ing)? with|pick(?:ed)?|choose"
    r"|chose|chosen|decided on|settled? on|(?:switch|mov|migrat)(?:e|ed|ing)? (?:over )?to)"
)
_CHOSEN: Final = r"(?P<a>[^,，;；。]{1,60}?)"
_PURPOSE: Final = r"(?P<b>[^,，;；。:]{1,80}?)"
_CHOICES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_USE}\s{_CHOSEN}\s(?:for|as)\s(?:the\s|our\s)?{_PURPOSE}$",
        rf"\b(?:switch|mov|migrat|chang)(?:e|ed|ing)?\s{_PURPOSE}\s(?:over\s)?to\s{_CHOSEN}$",
        rf"^for\s{_PURPOSE},?\s(?:we|i)\s(?:\S+\s){{0,2}}?{_USE}\s{_CHOSEN}$",
        (
            rf"^{_PURPOSE}\s(?:is|are|will be) (?:now )?(?P<v>called|named|stored|hosted|written"
            rf"|built|deployed|served|hashed|signed)(?:\s(?:in|on|with|from|to|as))?\s{_CHOSEN}$"
        ),
        (
            rf"^{_PURPOSE}(?:改用|使用|采用|选用|换成|换到|切到|迁到"
            rf"|(?<![试费作应利不常通专])用(?!户|例|量|途|法))"
            r"\s?(?P<a>[A-Za-z][\w.+# -]{0,40}?)\s?[了吧]?$"
        ),
    )
)
_SEVERAL: Final = re.compile(r"\b(?:and|or|both|either)\b|[、,/&]|和|或", re.IGNORECASE)
_OWNED: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        (
            r"^(?P<b>.{1,80}?)\s(?:is|are)\s(?:now\s)?(?:owned|maintained|led"
            r"|managed)\sby\s(?P<a>[\w .@-]{1,40})$"
        ),
        (
            r"^(?P<a>[\w.@-]{1,30}(?:\s(?:team|[A-Z]\w+))?)\s(?:now\s)?(?:owns|maintains|leads"
            r"|is\s(?:now\s)?responsible\sfor)\s(?P<b>.{1,80})$"
        ),
        r"^(?P<b>.{1,60}?)(?:现在|改)?由\s?(?P<a>\w{1,20}?)\s?(?:来)?(?:负责|维护)",
    )
)


def _phrases(patterns: dict[str, str]) -> dict[str, re.Pattern[str]]:
    return {value: re.compile(pattern, re.IGNORECASE) for value, pattern in patterns.items()}


_RULES: Final = _phrases(
    {
        "no need": r"\bno need to\b|\b(?:do not|don't) (?:have|need) to\b|不用|不必|无需",
        "no": (
            r"\bnever\b|^no\s(?!wait|longer|need|one|idea|problem|worries|way|more)|\b(?:do not"
            r"|don['’]?t|must ?n['o]t|may not)\b(?! have\b| know\b| think\b| work\b)|\b(?:is"
            r"|are) (?:now )?(?:not allowed|forbidden|banned)\b|不要|禁止|严禁|不准|不许|不得|切勿"
            r"|避免|千万别|^别|不可以"
        ),
        "yes": (
            r"\b(?:is|are) (?:now |again )?(?:fine|ok|okay|allowed)\b|\bfeel free to\b|可以|允许"
            r"|\bit(?:['’]s| is)? (?:fine|ok|okay) to\b|\b(?:we|you|they|i) (?:can"
            r"|may)\b(?=.*\bagain\b)"
        ),
        "always": r"\balways\b|必须|一定要|务必|总是",
    }
)
_RULE_WORDS: Final = GRAMMAR | {"use", "want", "like", "let", "always", "ever", "allow"}
_DONE: Final = (
    r"(?:done|finished|completed?|implemented|shipped|merged|deployed|released|ready|live|fixed"
    r"|resolved|started|written|tested|migrated|reviewed)"
)
_IS: Final = r"\b(?:is|are|was|were|has been|have been) (?:now |all |still |currently |already )*"
_STATES: Final = _phrases(
    {
        "off": rf"{_IS}(?:disabled|turned off|switched off|off$)|已?经?(?:关闭|禁用|停用)了?",
        "on": rf"{_IS}(?:enabled|turned on|switched on|on$)|已?经?(?:开启|启用)了?",
        "open": (
            rf"\b(?:is|are|has|have|was)?(?: not|n['’]t) (?:yet |been )*{_DONE}\b|{_IS}pending\b"
            r"|\bto[- ]?do\b:?|(?:还没有?|尚未|未|没)(?:实现|做完|完成|开始|修复|上线|部署|测试"
            r"|合并|做)"
        ),
        "under way": (
            r"\b(?:is |are )?(?:in progress|under ?way|wip|unblocked)\b|进行中|(?:正在"
            r"|还在)(?:进行|做|实现|修复|开发)"
        ),
        "blocked": rf"{_IS}(?:blocked|on hold|stuck|paused|waiting)\b|被?(?:卡住|阻塞|搁置)",
        "dropped": rf"{_IS}(?:cancell?ed|dropped|abandoned|postponed)\b|(?:取消|推迟|废弃)了",
        "broken": rf"{_IS}broken\b(?! on)|坏了|挂了",
        "done": rf"{_IS}{_DONE}\b|已?经?(?:实现|做完|完成|修复|修好|上线|搞定|合并|解决)了?$",
    }
)
_ENDS: Final = re.compile(r"\b(?:by|until|because|due to|since|for|on)\b.*$", re.IGNORECASE)
_PARTLY: Final = re.compile(r"^\d|\b(?:before|after|when|while|once|until)\s", re.IGNORECASE)
_PREFERS: Final = re.compile(
    r"(?:\b(?:i|user|we)\b.{0,20}?\b(?:prefers?|favou?rs?)\s|我?(?:更|比较)?(?:喜欢"
    r"|偏好)用?)(?P<a>.{1,40}?)\s?(?:\bover\b|\brather than\b|\binstead of\b|\bto\b(?! be)|而不是"
    r"|胜过)\s?(?P<b>.{1,40}?)(?:\s(?:for|in|when|while|on)\s(?P<c>.{1,60}))?$",
    re.IGNORECASE,
)
_CALLED: Final = re.compile(
    r"\b(?:call me|my name is)\s(?!when|if|back|later|at|on|after|before"
    r"|once)(?P<a>[\w'-]{1,20}(?:\s[\w'-]{1,20})?)$|(?:叫我|我叫)(?P<z>\w{1,12})$",
    re.IGNORECASE,
)


def _preference_of(text: str) -> Subject:
    """What users are called, and which of two things they like better."""
    if (called := _CALLED.search(text)) is not None:
        name = (called["a"] or called["z"]).casefold()
        return Subject(subject="user", attribute="name", value=name)
    match = _PREFERS.search(text)
    value, other = (_value_of(match["a"]), _value_of(match["b"])) if match else ("", "")
    if match is None or not (value and other):
        return UNTOLD
    pair = " / ".join(sorted((value, other)))
    subject = " ".join(filter(None, ("user", pair, _name_of(cut(match["c"] or "")))))
    return Subject(subject=subject, attribute="preference", value=value)


def _rule_of(text: str) -> Subject:
    """What may or may not be done: a rule and its lifting are one thing."""
    for value, phrase in _RULES.items():
        if (match := phrase.search(text)) is not None:
            left = cut(f"{text[: match.start()]} {text[match.end() :]}")
            subject = _name_of(_stemmed(left), leave_out=_RULE_WORDS)
            return Subject(subject=subject, attribute="rule", value=value)
    return UNTOLD


def _stemmed(tokens: Iterable[Token]) -> Iterator[Token]:
    """Deploy, deploys and deploying are one deed."""
    for token in tokens:
        plain = token.kind == "word" and token.text.isascii() and token.text.isalpha()
        stems = tokenize(token.text) if plain and token.text not in _RULE_WORDS else []
        yield replace(token, text=stems[0]) if len(stems) == 1 else token


def _state_of(text: str) -> Subject:
    """How far something is, or whether it is on: open and done are states of one thing."""
    for value, phrase in _STATES.items():
        if (match := phrase.search(text)) is not None:
            if _PARTLY.search(text[: match.start()]):
                return UNTOLD
            left = cut(f"{text[: match.start()]} {_ENDS.sub('', text[match.end() :])}")
            attribute = "switch" if value in ("on", "off") else "state"
            return Subject(subject=_name_of(left), attribute=attribute, value=value)
    return UNTOLD


def _owner_of(text: str) -> Subject:
    """Who answers for what."""
    for phrase in _OWNED:
        if (match := phrase.search(text)) is not None:
            subject, owner = _name_of(cut(match["b"])), _value_of(match["a"])
            return Subject(subject=subject, attribute="owner", value=owner)
    return UNTOLD


def _choice_of(text: str) -> Subject:
    """What was chosen for what; nothing where both could hold beside another choice."""
    for phrase in _CHOICES:
        match = phrase.search(text)
        if match is None or _SEVERAL.search(match["a"]):
            continue
        value, about = _value_of(match["a"]), cut(match["b"])
        head = next((token.text for token in reversed(about) if token.text not in FILLER), "")
        verb = match.groupdict().get("v") or ""
        if not value or not _name_of(about) or (head in _COMPONENTS and not verb):
            continue
        attribute = "name" if verb in ("called", "named") else verb or "choice"
        return Subject(subject=_name_of(about), attribute=attribute, value=value)
    return UNTOLD
