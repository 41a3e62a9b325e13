"""The words that lead into statements, correct, or speak against keeping them; English and Chinese.

Owns folding (matching without moving a character) and the doubts. Must never decide alone:
`statements` says which doubt counts for which form. What always holds: patterns are bounded, so the
time is linear in a sentence, and folding keeps every length.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

BLANK: Final = "\ufffc"
"""Stands for each character of a long quotation; no pattern matches it."""


class Refusal(StrEnum):
    """Why a sentence that sounds like a statement is not kept."""

    TOO_LONG = "too long for a statement"
    TOO_SHORT = "too short to stand alone"
    TOO_MANY = "too many statements for a message"
    SECRET = "a secret"  # noqa: S105
    QUESTION = "a question"
    SPECULATION = "speculation"
    HYPOTHETICAL = "a hypothetical"
    STORY = "a story"
    OTHERS = "words of others"
    SARCASM = "sarcasm"
    TEMPORARY = "a temporary step"
    REQUEST = "a one-off request"
    SMALL_TALK = "small talk"
    POINTING = "it points at something said elsewhere"
    HALF = "it begins or ends in the middle"
    ECHO = "it says again what the user said"
    CUSTOMER = "the case of somebody who is not named"
    EXPLAINED = "an explanation"
    BESIDE_PASTE = "beside pasted text"
    NO_SUBJECT = "what it is about cannot be named"


LEAD_INS: Final = re.compile(
    r"[\s*_\"'(]*(?:(?:please |pls )?(?:remember|note|keep in mind|don't forget)(?: that| this)?"
    r"|(?:oh )?(?:and )?(?:fyi|btw|by the way|actually|for the record|just so you know|so you know"
    r"|heads[- ]up|please|pls|also)|(?:it turns out|we(?:'ve| have)? (?:decided|agreed)) that"
    r"|(?:ok(?:ay)?|oh|ah|hey|hi|hello|yeah|yep|yes|well|so|and|but|then|anyway|hm+|um+|wait"
    r"|no wait|sorry|my bad|my mistake|correction|update|oops|typo|scratch that|i was wrong"
    r"|i misspoke|i meant|change of plans?|new plan|on second thought|to be clear|reminder|hold on"
    r"|that's wrong)(?=[\s,:;!.—–-])(?! for\b)|(?:decision|agreed|decided|important|no|right|look"
    r"|great|thanks|sure)(?=[:,;!.—–])|请?(?:记住|记一下|注意)|更正(?:一下)?|纠正一下|其实|抱歉"
    r"|对不起|不好意思|不对|我?[说记写弄打]错了|等等|另外|顺便说一下|补充一下"
    r"|更新(?:一下)?(?=[:,，])|对了|哦|嗯)(?:[\s,:;!.，：；！。—–-]+|(?<=[\u4e00-\u9fff]))",
    re.IGNORECASE,
)
"""What may stand before a statement; taken off again and again."""
CORRECTS: Final = re.compile(
    r"\b(?:sorry|actually|oops|wait|correction|typo|i meant|i misspoke|my (?:bad|mistake)"
    r"|scratch that|forget (?:that|it|about)|on second thought|change of plans?|chang(?:ed"
    r"|ing) (?:my|our) minds?|make (?:that|it)|that(?:'s| is) wrong|mixed (?:up|that)|misread"
    r"|instead|no longer|any ?more|switch(?:ed|ing)? (?:to|from|back)|mov(?:ed|ing) (?:to|off"
    r"|from)|back to|drop|too (?:much|small))\b|^no,|, not \S|不对|[说写记弄搞打看]错|更正|纠正"
    r"|改[成为用到回]|换[成回]|用回|不再|而不是|改主意|算了|不是.{1,24}(?:而是|[，,]\s?是)"
    r"|还是(?:用|改|换|选)|取消|推迟|不要了|不用.{0,16}了|改了|想了想"
)
REPLACED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r",\s?(?:and )?not (?:on |at |the )?([^\s,.;]+(?:[.:/]\d+)*)",
        r"\b(?:instead of|rather than|in place of|no longer (?:use |on )?)\s?(?:the )?([^\s,.;]+)",
        r"\b(?:switch\w*|mov\w+|migrat\w+|chang\w+) (?:[\w-]+ ){0,3}?from ([^\s,.;]+)",
        r"\b(?:scratch|drop|ditch|forget about|forget)\s(?!that|it|the|this)([^\s,.;]+)",
        r"不是\s?([^\s,，。而是]{1,20}?)\s?[,，]?\s?(?:而是|是)",
        r"从\s?([^\s,，。]{1,20}?)\s?(?:[换改]成|改为|换到|升级到|迁移?到|切到)",
        r"(?:而不是|不再用|不用)\s?([^\s,，。了]{1,20})",
    )
)
"""What a correction says no longer holds."""
_DOUBTS: Final = {
    Refusal.SECRET: r"\b(?:password|passwd|passphrase|secret|token|api[- ]?key"
    r"|credentials?)\b(?: \w+){0,3} (?:is|are|=|:|was|to)\b|\[redacted|(?:密码"
    r"|口令|密钥|令牌|token) ?(?:是|为|改成|[:：=])",
    Refusal.QUESTION: r"[?？]\W*$|^\W*(?:and |but |so )?(?:can|could|would|will|should|is|are|was"
    r"|do(?! not)|does|did|has|have|what|what's|why|how|when|where|who|which)\b"
    r"|, (?:right|ok|correct|no)\W*$|[吗嘛呢]\W*$|是不是|要不要|会不会|能不能"
    r"|为什么|为啥|怎么|什么|哪[个里些]|多少|是否|对吧|对不对",
    Refusal.SARCASM: r"(?:^|\s)/s\b|\bgenius\b|\bbrilliant\b|what could (?:possibly )?go wrong"
    r"|\blo+l\b|\byeah,? right\b|\boh great\b|\blmao\b|\bha(?:ha)+\b|^\W*sure,"
    r"|哈哈|呵呵|天才|太棒了|反正没人|干脆|😂|🙄",
    Refusal.STORY: r"\b(?:last|old|previous|former|first) (?:job|team|company|place|employer"
    r"|project)\b|\b(?:years?|months) ago\b|\bback (?:then|in the)\b|\bfriend's\b"
    r"|上家|前公司|以前|几年前|当年|朋友|曾经|当时",
    Refusal.OTHERS: r"\b(?:says?|said|wrote|claims?|suggests?|recommends?|told (?:me|us)"
    r"|according to|heard|they(?:'re|'ve)?|their|them|customers?|vendors?"
    r"|some(?:body|one))\b|\bdocs? 上|文档|官方|据说|听说|他们|客户|供应商|别人"
    r"|人家|隔壁|建议|[^我听]\s?说(?=[,，:：\s]|[^错明好服])|写着|要求",
    Refusal.HYPOTHETICAL: r"\b(?:if|unless|suppos(?:e|ing)|imagine|assuming|in theory)\b|如果|假如"
    r"|假设|要是|的话",
    Refusal.SPECULATION: r"\b(?:maybe|perhaps|possibly|probably|presumably|apparently|might|could"
    r"|would|i'd|i (?:think|guess|suppose|believe|assume|bet)|not sure"
    r"|no idea|seems?|looks like|sounds like|wonder\w*|thinking (?:of|about)"
    r"|consider(?:ing)?|tempted|what if|how about|ideally|hopefully|some ?day"
    r"|one day|at some point|eventually|may (?:be|have|need)|iirc"
    r"|should(?! (?:always|never))|plan(?:ning|s)? to)\b|也许|或许|可能|大概"
    r"|好像|似乎|估计|觉得|我想(?!了想)|我猜|感觉|要不|不如|打算|考虑|说不定"
    r"|不确定|不知道|应该(?!是)|或者",
    Refusal.TEMPORARY: r"\b(?:for now|for the moment|at the moment|temporar\w+|while (?:we|i|you)"
    r"|this time|for a (?:sec|bit|moment)|for this one|let me|i'll|i will|(?:we"
    r"|i) need to|try(?:ing)?|tried|debug\w*|(?:to )?see (?:if|what|whether"
    r"|the)|keeps? \w+ing|still (?:dies|fails|crashes))\b|暂时|临时|这次|试试"
    r"|试一下|看看|看一下|再说|先(?!前|生|进|后)|刚才|我来|我去|还是 ?(?:oom"
    r"|不行|报错)",
    Refusal.SMALL_TALK: r"\b(?:wow|amazing|awesome|lovely|weekend|lunch|dinner|birthday|hungry"
    r"|tired|incredible|good (?:morning|night|luck)|must have been)\b|[好太]累"
    r"|辛苦|晚安|早安|恭喜|吃饭",
}
_PATTERNS: Final = {why: re.compile(pattern) for why, pattern in _DOUBTS.items()}
_WEAK: Final = frozenset({Refusal.HYPOTHETICAL, Refusal.SPECULATION, Refusal.TEMPORARY})
_ORDER: Final = re.compile(
    r"(?:^|[,;:.!—–]\s*|\b(?:and|but|so|then|or) )(?:(?:now|just|also|please|pls|first"
    r"|go) )?(?:add|apply|bump|change|check|clean|commit|continue|convert|copy|create|debug|delete"
    r"|deploy|do|draft|drop|edit|explain|extract|find|finish|fix|generate|get|give|go ahead"
    r"|have a look|help|implement|install|investigate|list|load|look|make|merge|modify|move|open"
    r"|pick|print|push|put|read|redo|refactor|remove|rename|replace|rerun|re-run|restart|review"
    r"|revert|rewrite|run|search|see|send|set|show|skip|start|stop|summari[sz]e|switch|take|tell"
    r"|test|translate|try|turn|undo|update|upgrade|verify|write|use the|todo|fixme|let's (?:check"
    r"|see|try|look|start|test|do|get)|i (?:want|need|was hoping)(?: for)? you|i want)\b"
    r"|^\W*(?:帮我|麻烦|请帮|给我|把|去|加[个一]|写个|做个|跑|查|看|重写|继续|直接)"
)


def doubt(low: str, *, standing: bool = False) -> Refusal | None:
    """Why a folded sentence is not kept; None where nothing speaks against it.

    `standing`: it lays down a rule or asks to be remembered, which a condition or a doubtful reason
    does not weaken.
    """
    weak = _WEAK if standing else frozenset()
    return next(
        (why for why, pattern in _PATTERNS.items() if why not in weak and pattern.search(low)), None
    )


def order_at(low: str) -> int | None:
    """Where a folded sentence begins to ask for something to be done now; None: it does not."""
    match = _ORDER.search(low)
    return None if match is None else match.start()


_SIMPLIFIED: Final = (
    "記记決决這这個个換换採采後后須须務务別别還还沒没為为號号徑径網网對对說说錯错應应該该們们會会時时間间實实"
    "現现開开關关問问題题請请總总從从動动數数據据庫库監监聽听運运設设測测試试線线環环過过歡欢慣惯習习無无當当與与"
    "點点週周寫写發发佈布檢检壞坏碼码裡里嗎吗麼么給给級级遷迁選选約约認认確确負负責责臨临暫暂調调維维護护訂订單单"
)
_SIMPLER: Final = dict(zip(map(ord, _SIMPLIFIED[::2]), _SIMPLIFIED[1::2], strict=True))
_FOLDS: Final[dict[int, str]] = {
    **_SIMPLER,
    **{ord(mark): '"' for mark in "“”「」『』"},
    **{0xFF10 + digit: str(digit) for digit in range(10)},
    ord("‘"): "'",
    ord("’"): "'",
    0x3000: " ",
    0xA0: " ",
    ord("："): ":",
}
_QUOTED: Final = re.compile(
    r"“[^”\n]{1,2000}(?:”|$)|「[^」\n]{1,2000}(?:」|$)|『[^』\n]{1,2000}(?:』|$)"
    r"|\"[^\"\n]{1,400}\""
)
_LONG_QUOTE: Final = re.compile(r"\S+(?:\s+\S+){4}|(?:[^\u3400-\u9fff]*[\u3400-\u9fff]){8}")


def folded(text: str) -> str:
    """A line for matching, as long as it was: lower case, plain marks, simplified characters, long
    quotations blanked because they are somebody else's words."""
    kept = _QUOTED.sub(_blanked, text)
    lowered = kept.lower()
    if len(lowered) != len(kept):
        lowered = "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in kept)
    return lowered.translate(_FOLDS)


def simplified(text: str) -> str:
    """A text with simplified characters, as far as the rules use them."""
    return text.translate(_SIMPLER)


def _blanked(quoted: re.Match[str]) -> str:
    inner = quoted[0][1:-1]
    return quoted[0] if not _LONG_QUOTE.match(inner) else f'"{BLANK * len(inner)}"'
