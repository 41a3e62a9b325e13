"""Finds statements that point at something which was said elsewhere: "it uses X", "added them".

Owns the words that stand for a name, in English and Chinese, and those that name nothing although
they are nouns ("the fix", "the issue"). Must never take "it is important that ..." or "this repo"
for a riddle. What always holds: works on one folded sentence; pure, linear.
"""

from __future__ import annotations

import re
from typing import Final

_START: Final = (
    r"^[\s*_\"'`(\[-]*(?:(?:so|and|but|now|then|also|however|meanwhile|since|because|if|when"
    r"|therefore|thus|finally|additionally|in addition|next|first|second|overall|instead|similarly"
    r"|ok|okay|yes|no|well|unfortunately|understood|got it|noted)[,:]?\s+)*"
)
# What everybody in a session can see, and a later reader still knows.
_AT_HAND: Final = (
    r"(?:\w+ )?(?:repo|repository|project|app|codebase|code base|monorepo|team|company|machine"
    r"|box|laptop|server|workspace|cluster|service|branch|account|book|novel|house|flat|year"
    r"|month|week|quarter|sprint|release|game|paper|thesis|site|website|product|org|office"
    r"|organi[sz]ation|household|trip|family|city|country)\b"
)
_EXPLETIVE: Final = (
    r"it(?:'s| is| was|'d be)? (?:\w+ ){0,2}?(?:important|crucial|essential|vital|fine|ok|okay"
    r"|better|best|necessary|required|forbidden|allowed|possible|worth|agreed|decided|settled"
    r"|cause|because|turns|takes|official|clear)\b"
    r"|this (?:is because|means|time)\b|that (?:said|means|way|being said)\b"
    r"|both \w+ and \b|here,? (?:we|i)\b|here(?:'s| is| are) (?:the|our|my) [^:]{1,40}:"
)
_SOME_OF_THEM: Final = (
    r"(?:these|those|both|neither|all (?:two|three|four|five|of (?:it|them|these|those|this|that))"
    r"|each of them|one of them|the (?:two|three|former|latter|same|above|rest|other one|others))"
)
_LEADING: Final = re.compile(
    rf"{_START}(?!{_EXPLETIVE})(?:(?:it|they|them|he|she|him|her|its|their)\b"
    rf"|{_SOME_OF_THEM}(?: \w+){{0,3}}?"
    r" (?:is|are|was|were|uses?|have|has|share|do|does|go|run|will|now|should|must)\b"
    rf"|(?:this|that)(?! {_AT_HAND})\b(?! one (?:in|at|on|with|for|from)\b)"
    r"|here(?:'s| is| are)?\b)"
)
_AFTER_CLAUSE: Final = re.compile(
    rf"{_START}(?:when|whenever|once|after|while|as soon as)\b[^,`\d]{{1,60}}, "
    r"(?:it|this|they|that)\b"
)
_NAMELESS: Final = re.compile(
    rf"{_START}(?:the|our|your|a|one|another|my) "
    r"(?:main |only |real |actual |root |key |underlying |current |whole )?(?:fix|issue|problem"
    r"|reason|cause|changes?|solution|results?|structure|closure|idea|answer|approach|trick|error"
    r"|failure|bug|difference|scaffold|implementation|refactoring|work|goal|task|point|rest|catch"
    r"|output)(?: (?:here|now|then|so far|itself|of (?:this|that|it|the component)))? "
    r"(?:is|are|was|were|now|has|have|remains?|seems?|does|will|should|must|uses?|gets?|in place"
    r"|we|you|i|occurs?|comes?|lies|happens?|arises?|requested|suggests?)\b"
)
_ONLY_ANSWERED: Final = re.compile(
    rf"{_START}(?:the|my|our) (?:only |real |main )?(?:reason|fix|solution) is (?:\S+\s*){{1,8}}$"
)
"""A user's answer to a question, and nothing besides."""
_SAYS_WHAT: Final = re.compile(r"^[^:]{1,60}:\s+(?=(?:\S+\s+){3})")
_SUMMED_UP: Final = re.compile(
    rf"{_START}(?:the short version|bottom line|in short|tl;?dr|to sum up)\b"
)
# A model explains code that it just showed; a user's "the script" is the one they have.
_SHOWN: Final = re.compile(
    rf"{_START}(?:in this case|based on (?:the|this|your)|as (?:you can see|shown|mentioned)"
    r"|the (?:new |updated |main |modified |key |following )*(?:method|function|script"
    r"|modification|tests?|code|class|changes?|graph|chart|snippet|example|command|file|block|loop"
    r"|variable|line|section|part|closure) (?:is|are|was|now|will|can|has|we|i|you|uses|reads"
    r"|writes|calls|returns|takes|runs|sends|shows|displays|visuali[sz]es|retrieves|affects|distinguishes"
    r"|handles|checks|verifies|creates|contains|allows|captures)\b)"
)
_HEADLESS: Final = re.compile(
    r"^(?:reads|returns|creates|uses|sends|handles|checks|adds|sets|calls|takes|gets|makes|runs"
    r"|allows|ensures|provides|verifies|updates|removes|displays|shows|prints|writes|loads"
    r"|supports)\b"
)
_NO_SUBJECT: Final = re.compile(
    rf"{_START}(?:(?:not (?:called|set|equal)|should|must|needs? to|has to|is|are|was|were|will"
    r"|would|can) (?!(?:we|you|i|they)\b)\w|with (?:an?|the) [\w -]{1,80}\W*$"
    r"|otherwise (?:it|they)\b)"
)
_DOING: Final = (
    r"(?:add|put|mov|fix|remov|keep|kept|drop|mak|made|set|us|call|chang|renam|delet|revert"
    r"|deploy|ship|schedul|port|do|did|don|complet|finish|merg|skip|leav|left|need|want|test|run"
    r"|ran|switch|updat|creat|wrote|writ|implement|replac|copi|copy|commit|push|pass|wir|extract"
    r"|split|clean|book|cancel|convert|read|open|check|send|sent|get|got|ask|show|see|saw|tri|try)"
    r"(?:e|es|ed|s|ing|ning|ting|ped|ping|ted|y|ied|ies|n|ne)?"
)
_OBJECT: Final = re.compile(
    rf"{_START}(?:(?:i|we|you|they|i've|we've|i'll|we'll|i'd|we'd|let's|please|always|never|don't"
    r"|do|not|just|also|now|then|have|has|had|will|should|must|need|to|want|going|are|is|am"
    r"|decided|agreed|already|later|only|still|can|could|would|be|been|like)\s+){0,6}"
    rf"{_DOING}\s+(?:up |over |out |in |on |back |off )?(?:it|them|that|this|those|these|one|both)"
    r"(?=\s*(?:[.,;!:)]|$)|\s+(?:to|in|into|on|at|as|for|from|with|by|up|over|out|back|off|and|so"
    r"|now|yet|too|after|before|again|more|one|instead|all)\b)"
)
_BE_THAT: Final = re.compile(r"\b(?:be|is|are|was) (?:that|this|those|these)\s*(?:[.,;!]|$)")
_THESE: Final = re.compile(
    r"\b(?:these|those) (?:\w+ )?(?:methods?|functions?|helpers?|changes|tests|classes|values"
    r"|lines|options|settings|fields|places|cases|errors|two|three)\b"
)
_CHINESE: Final = re.compile(
    r"^\s*(?:[它他她]们?|其(?!他|实|它|余|中)|两者|前者|后者"
    r"|(?:这(?!个?(?:项目|仓库|库|repo|服务|台|套|边|周|个月|季度|本|次|期))"
    r"(?:个|些|样|里|种|两个|几个|三个)?|那(?!边|台|就|个?(?:项目|仓库))(?:个|些|样|里|种)?"
    r"|以上|上面|如下)(?:\s|的|是|在|用|会|已|都|就|要|不|也|把|被|改|放|写|，|,))"
)


def pointing(low: str, *, by_user: bool) -> str:
    """Why a folded sentence cannot be understood by itself; empty where it can."""
    if any(one.search(low) for one in (_LEADING, _CHINESE, _AFTER_CLAUSE)):
        return "it points at something said elsewhere"
    if any(one.search(low) for one in (_OBJECT, _BE_THAT, _THESE)):
        return "its object is only pointed at"
    if by_user:
        if _ONLY_ANSWERED.search(low):
            return "its subject has no name"
        return "it has no subject" if _NO_SUBJECT.search(low) else ""
    return _explained(low)


def _explained(low: str) -> str:
    """Why a model's sentence is only of use beside what it was said of."""
    if _NAMELESS.search(low):
        rest = _SAYS_WHAT.sub("", low)
        return pointing(rest, by_user=False) if rest != low else "its subject has no name"
    if _HEADLESS.search(low):
        return "it has no subject"
    if _SHOWN.search(low) or _SUMMED_UP.search(low):
        return "it explains something that was shown"
    return ""
