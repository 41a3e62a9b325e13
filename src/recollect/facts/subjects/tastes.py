"""Statements of users about themselves: what they prefer, what they are called, where they are.

Always holds: two preferences meet only where one excludes the other: they are of one kind, or name
the same two things.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.facts.subjects.kinds import kind_of, value_of
from recollect.facts.subjects.subject import UNTOLD, Subject, name_of
from recollect.facts.subjects.values import cut
from recollect.facts.subjects.words import listed

_PREFERS: Final = re.compile(
    r"(?:\b(?:i|user|we)\b.{0,20}?\b(?:prefers?|favou?rs?|(?:would )?rather(?: use| have)?"
    r"|likes?|loves?)\s|"
    r"(?:我|用户)?(?:现在)?(?:更|比较|还是)?(?:喜欢|偏好|倾向于?|习惯)(?:用|使用)?"
    r"|^(?:user )?prefers?\s)"
    r"(?P<a>.{1,80}?)"
    r"(?:\s?(?:\bover\b|\brather than\b|\binstead of\b|\bto\b(?! be)|而不是|胜过"
    r"|不喜欢)\s?(?P<b>.{1,40}?))?"
    r"(?:\s(?:for|in|when|while|on)\s(?P<c>.{1,60}))?$",
    re.IGNORECASE,
)
_USER: Final[tuple[tuple[str, str, re.Pattern[str]], ...]] = (
    (
        "user",
        "name",
        re.compile(
            (
                r"\b(?:call me|my name is)\s(?!when|if|back|later|at|on|after|before"
                r"|once)(?P<a>[\w'-]{1,20}(?:\s[\w'-]{1,20})?)$|(?:叫我|我叫"
                r"|我的名字是)(?P<z>\w{1,12})"
            ),
            re.I,
        ),
    ),
    (
        "user reply",
        "language",
        re.compile(
            (
                r"^(?:please\s|always\s|from now on\s)*(?:reply|answer|respond|talk|speak|i (?:want"
                r"|would like|like) (?:your |all )?(?:answers|replies))(?: to me)?(?: only"
                r"| always)? in (?P<a>\w+)|(?:用|使用|说|请用)(?P<z>中文|英文|英语|汉语"
                r"|日语)(?:来)?(?:回答|回复|交流)|(?:回答|回复)时?请?都?用(?P<y>中文|英文|英语|汉语"
                r"|日语)"
            ),
            re.I,
        ),
    ),
    (
        "user",
        "time-zone",
        re.compile(r"\bmy time ?zone is\s(?P<a>[\w/+:-]{1,40})$|我的时区是(?P<z>.{1,20})$", re.I),
    ),
    (
        "user",
        "home",
        re.compile(
            (
                r"\bi (?:now )?(?:live|am based|moved) (?:in|to)\s(?P<a>[\w ]{1,40}?)(?: now)?$"
                r"|我(?:现在)?(?:住在|搬到)了?(?P<z>\w{1,20})"
            ),
            re.I,
        ),
    ),
    (
        "user",
        "employer",
        re.compile(
            (
                r"\bi (?:now )?work (?:at|for)\s(?P<a>[\w .&-]{1,40}?)(?: now)?$"
                r"|我在(?P<z>\w{1,20})(?:工作|上班)"
            ),
            re.I,
        ),
    ),
)
_REPLIES: Final = listed("answer reply response explanation")
_LENGTHS: Final = listed("short brief concise terse long detailed verbose thorough longer shorter")
_LANGUAGES: Final = {
    "中文": "chinese",
    "汉语": "chinese",
    "英文": "english",
    "英语": "english",
    "日语": "japanese",
}
_USES: Final = re.compile(
    r"^(?:我(?:现在)?(?:用|换成|改用)(?:的是)?\s?|i (?:now |mostly )?(?:use|am using"
    r"|switched to|moved to|work (?:on|with|in))\s)"
    r"(?P<a>[\w .-]{1,40}?)(?:\s?了)?$",
    re.IGNORECASE,
)
_PERSONAL: Final = frozenset({"editor", "os", "shell", "theme"})
_FAVOURITE: Final = re.compile(
    r"\bmy favou?rite\s(?P<b>[\w -]{1,40}?)\s(?:is|are)\s(?:now\s)?(?P<a>[\w +#.-]{1,40})$|"
    r"我最喜欢的(?P<y>\w{1,12}?)是(?P<z>\w{1,20})$",
    re.IGNORECASE,
)


def user_of(text: str) -> Subject:
    """What the user says of themselves and prefers; nothing where the clause is neither."""
    for subject, attribute, phrase in _USER:
        found = phrase.search(text)
        if found is not None:
            said = next(said for said in found.groups() if said).strip().casefold()
            said = _LANGUAGES.get(said, said)
            return Subject(subject=subject, attribute=attribute, value=said)
    found = _FAVOURITE.search(text)
    if found is not None:
        topic = name_of(cut(found["b"] or found["y"]))
        said = (found["a"] or found["z"]).casefold()
        return Subject(subject=topic and f"user {topic}", attribute="favourite", value=said)
    found = _PREFERS.search(text)
    if found is not None:
        return _preferred(found)
    found = _USES.search(text)
    kind = kind_of(found["a"]) if found is not None else ""
    if found is None or kind not in _PERSONAL:
        return UNTOLD
    return Subject(subject=f"user {kind}", attribute="preference", value=value_of(found["a"]))


def _preferred(found: re.Match[str]) -> Subject:
    value = value_of(found["a"])
    scope = name_of(cut(found["c"] or ""))
    kind = kind_of(found["a"]) or kind_of(found["b"] or "") or _length(value)
    if not kind and found["b"]:
        kind = " / ".join(sorted((value, value_of(found["b"]))))
    if not (kind and value):
        return UNTOLD
    subject = " ".join(part for part in ("user", kind, scope) if part)
    return Subject(subject=subject, attribute="preference", value=value)


def _length(value: str) -> str:
    words = set(value.split())
    return "reply length" if words & _REPLIES and words & _LENGTHS else ""
