"""Trims a sentence to the statement in it, and finds what it says no longer holds.

Owns which words around a statement are only manners: "ok so, please remember that", "thanks!".
Must never add a word. What always holds: the content is a stretch of the sentence with its white
space on one line, and no longer than `MOST_CONTENT_CHARS`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from recollect.facts.stating.folded import folded
from recollect.facts.stating.values import VALUE
from recollect.rules.text import bounded

MOST_CONTENT_CHARS: Final = 200
"""A statement, and not the paragraph around it: OpenClaw's facts are one line each."""

MOST_CHARS_BEFORE: Final = 120
"""How far before a statement it is said that it corrects: about a sentence or two."""

_MARK: Final = re.compile(r"\s*+(?:[-*+•#]+\s+|\d{1,3}[.)、]\s*|\[[ x]\]\s*)")
# "no emojis" must not become "emojis": what may begin a statement goes only before a mark.
_LEADING: Final = re.compile(
    r"[\s*_\"'(]*+(?:"
    r"(?:ok(?:ay)?|oh|ah|hey|hi|hello|yeah|yep|yes|well|so|and|but|also|then|btw|by the way|anyway"
    r"|hm+|um+|uh+|please|pls|plz|just|fyi|actually|oh and|ah and|sorry|for the record"
    r"|just so you know|so you know|i meant(?: to say)?)\b[\s,.:;!—–-]+"
    r"|(?:scratch|scrap|strike|forget(?: about)?|never ?mind) [\w.+#-]{1,30}\s*[,.:;!，—–-]+\s*"
    r"|(?:no|right|look|wait|alright|cool|great|fine|thanks|perfect|nice|sure|quick(?: note)?"
    r"|one more thing|plus|heads[- ]up|psa|important|note|reminder|update|correction|corrected"
    r"|for (?:your|future) reference|for later|oops|my bad|my mistake|exactly|agreed|noted|got it"
    r"|looks good|done|good (?:point|catch|question))\s*[,.:;!，—–-]+\s*"
    r"|(?:(?:can|could|would|will) you |i(?:'d| would) like you to |i (?:want|need) you to )?"
    r"(?:please |also |do )*(?:remember|keep in mind|bear in mind|note|make a note|take note"
    r"|don't forget|memori[sz]e)(?: (?:this|the following|please|for (?:later|next time"
    r"|the future)))*(?:\s+that\b|\s*[:,—–-]|(?=\s))\s*"
    r"|(?:好的?|嗯+|哦+|噢|啊|对了|对|那|另外|还有|然后|所以|不过|ok|行|好吧|不好意思|抱歉|对不起"
    r"|啊?我?(?:说错|记错|搞错|弄错|写错)了|更正一下|更正|纠正一下|明白|了解|收到|等下|等一下"
    r"|顺便(?:说一下|提一下|一提)?|补充(?:一下|一点)?|请|麻烦)[，,。:！!、\s]+"
    r"|(?:请|麻烦|帮我|你|要|帮忙|先)*(?:记住|记一下|记下来?|记着|牢记|请注意|注意一下|注意"
    r"|备注一下|备忘|提醒一下)(?:一下|了|哦|啊)?[，,:！!\s]*"
    r")"
)
_TRAILING: Final = re.compile(
    r"(?:[\s,，]*(?:\b(?:thanks|thank you|thx|ty|please|pls|ok|okay|btw|cheers|got it|alright)\b"
    r"|谢谢|多谢|哈|哦|噢|啊|呀|好吗|行吗|可以吗|知道了吗|ok吗|:\)|🙏|👍)[\s.!?~。！？*_]*)+$"
)
_WORD: Final = re.compile(r"[a-z\d][\w'./:@-]*|[\u3400-\u9fff]")
_LEAST_WORDS: Final = 3
_MARKS: Final = " ,，;；:："
_MOST_LEADING: Final = 8

_FUNCTION_WORDS: Final = (
    r"(?!(?:the|an?|on|in|at|to|for|just|only|yet|sure|really|very|that|this|it|all|even|so|as"
    r"|with|because|if|when|by|of|my|our|your|allowed|always|anymore|too|necessarily)\b)"
)
_V: Final = rf"(?:{VALUE}|{_FUNCTION_WORDS}[\w.+#/-]+)"
_REPLACED: Final = (
    re.compile(rf"\bfrom ({_V}(?: [\w.]+)?) to\b"),
    re.compile(
        r"\b(?:instead of|rather than|in place of|replacing|no longer(?: using| on| in| at)?"
        r"|away from|off of|forget about"
        r"|(?:dropping|dropped|ditching|ditched|scrap|drop|ditch)) (?:the |our "
        r"|using )?([\w.+#/:@-]+(?: \d[\w.]*)?)"
    ),
    re.compile(rf"(?:,|—|-|\() ?(?:and )?not (?:the |on |in |at |to |for )?({_V})"),
    re.compile(rf"\bnot ({_V}),? (?:but|it's|rather)\b"),
    re.compile(rf"\b(?:isn't|is not|aren't|are not) ({_V}) any ?more\b"),
    re.compile(rf"\b(?:was|used to be|were) ({VALUE})(?:,| before| until| and is now| but)"),
    re.compile(
        r"(?:不是|并非|而不是|而非|不再是|不再用|不再使用|弃用|取代|替换掉?|代替)"
        r"\s*([^\s，。！？；、,;了而是]{1,24})"
    ),
    re.compile(r"([a-z][\w.+#-]{1,30})\s?(?:那套|那个|就)?(?:不用了|不要了|弃用|废弃)"),
    re.compile(r"(?:从|由)\s*([^\s，。！？；,;]{1,24}?)\s*(?:改|换|切|迁|升|降|调|变|搬|移)"),
    re.compile(r"(?:把|将)\s*([a-z\d][\w.+#/:-]{0,24})\s*(?:改成|改为|换成|替换)"),
)
# What says that something before does not hold; "now" alone says only that something does.
_CORRECTS: Final = re.compile(
    r"\b(?:sorry|correction|corrected|actually|i meant?|my (?:bad|mistake|fault)"
    r"|scratch (?:that|the)|scrap (?:that|the)|typo|instead|no longer|change of plans?"
    r"|new plan|on second thoughts?|thinking about it|i was wrong|i misspoke|misread"
    r"|mis-?remembered|mis-?typed|mixed (?:that |them |it |these )?up|forget (?:that|it"
    r"|what i said|about|the)|never ?mind(?: the| that)?|strike that|ignore (?:that"
    r"|what i said)|changed (?:my|our) minds?|not any ?more|rather than|revert(?:ed|ing)?"
    r"|reconsidered|reali[sz]ed|switch(?:ed|ing)? (?:it |that |over )?(?:from|back|to)|mov(?:e"
    r"|ed|ing) (?:back to|away from|off)|make (?:that|it)|that(?:'s| is| was) wrong|i (?:said"
    r"|told you|gave you|wrote|got) (?:\w+ ){0,3}wrong|got (?:that|it|this) wrong|wrong (?:one"
    r"|number|port|way round)|(?:going|go|went|roll(?:ed|ing)?|switch(?:ed|ing)?|stick(?:ing)?"
    r"|back) back to|back to|replac(?:es|ed|ing)"
    r"|is(?:n't| not) (?:right|correct|true|\S+ any ?more)"
    r"|the other (?:one|number|way)|(?:oh|hm+|no|ah|ugh|argh),? (?:no )?wait|wait,? no|oops"
    r"|whoops|hold on|nah|i'm an idiot|stupid me|silly me|used to be|not true any ?more"
    r"|no(?=, it's)|out of date|outdated"
    r"|dropp(?:ed|ing)|ditch(?:ed|ing)?)\b|, not \S|说错|写错|记错|搞错"
    r"|弄错|打错|看错|记混|搞混|口误|更正|纠正|订正|不对|改成|改为|换成|改用|改到|改回|换回"
    r"|切回|用回|退回|回退|不再|不是.{1,24}(?:而是|[，,]\s?是)|而不是|改主意|算了|还是(?:用|改"
    r"|走|选|上|换|按|放|定|回)|作废|推翻|撤回|取消|推迟|延期|提前到|改了|不用.{0,16}了|不要了"
    r"|不走.{0,12}了|现在(?:是|改|用|换)|弃用|刚才(?:那个|说的|的)|之前(?:那个|说的)|等等|等下"
    r"|等一下|重新(?:定|选|考虑)|switch (?:to|back)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The statement in a sentence."""

    text: str = field(repr=False)
    replaces: str = field(default="", repr=False)
    corrects: bool = False


def content(sentence: str, trigger: tuple[int, int], *, before: str = "") -> Content:
    """The statement of a sentence; `trigger` is what has to stay where it is too long.

    `before` is what the speaker said just before it: "I mixed that up. It is …" corrects.
    """
    low = folded(sentence)
    corrects = _CORRECTS.search(low) is not None or _announced(before)
    start, end = _trimmed(low)
    if corrects and len(_WORD.findall(low, start, end)) < _LEAST_WORDS:
        start = 0  # half a sentence says more with the words that make it a correction
    text = sentence[start:end]
    if len(text) > MOST_CONTENT_CHARS:
        at = min(max(trigger[0] - start, 0), len(text) - 1)
        text = bounded(text, at, min(trigger[1] - trigger[0], len(text) - at), MOST_CONTENT_CHARS)
        text = text[:MOST_CONTENT_CHARS]
    return Content(
        text=" ".join(text.split()).strip(_MARKS),
        replaces=_replaced(sentence, low),
        corrects=corrects,
    )


def _announced(before: str) -> bool:
    """Whether the words just before say that something was wrong; they are not of this sentence."""
    return _CORRECTS.search(folded(before[-MOST_CHARS_BEFORE:])) is not None


def _trimmed(low: str) -> tuple[int, int]:
    start, end = 0, len(low.rstrip())
    mark = _MARK.match(low)
    start = mark.end() if mark else 0
    for _ in range(_MOST_LEADING):
        lead = _LEADING.match(low, start, end)
        if lead is None or lead.end() == start or not low[lead.end() : end].strip():
            break
        start = lead.end()
    tail = _TRAILING.search(low, max(start, end - 60), end)
    if tail is not None and tail.start() > start:
        end = tail.start()
    return start, end


def _replaced(sentence: str, low: str) -> str:
    for pattern in _REPLACED:
        found = pattern.search(low)
        if found is not None:
            return sentence[found.start(1) : found.end(1)].strip("`\"' ").rstrip(".,")
    return ""
