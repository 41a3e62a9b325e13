"""Knows how people correct themselves in half a sentence: "scratch that, SQS", "错了，是 7".

Owns the phrases that say at once that something before is off and what takes its place. Must never
match where nothing is put in the place: "scratch that" alone states nothing. What always holds:
only a user corrects so; the patterns are for folded sentences and bounded.
"""

from __future__ import annotations

import re
from typing import Final

from recollect.facts.stating.values import VALUE

_NAME: Final = (
    r"(?!(?:it|that|this|the|a|an|what|how|so|as|we|you|i|they|he|she|there|here|work|bed|sleep|me"
    r"|us|normal|square|basics|nothing|everything|all|just|sorry|thanks|ok|okay|yes|no|and|but|or"
    r"|not|never|let|i'll|i'm|can|could|where|then|coffee|tea|lunch|dinner|food|pizza|tomorrow|today"
    r"|tonight|later|found|got|fixed|works?|done|good|great|fine|nice|cool)\b)[a-z][\w.+#-]{1,30}"
)
_NAMED: Final = rf"(?:(?:plain|just|only|simply|good old) )?{_NAME}"
_OFF: Final = (
    r"(?:scratch|scrap|strike|forget|screw|drop) (?:that|it|this)(?: then)?|never ?mind(?: that)?"
    r"|nah|on second thoughts?|change of plans?|changed my mind|no,? wait|wait,? no|actually"
)
_TAKE: Final = r"(?:let's |we'll |i'll )?(?:use|take|go with|(?:go |going )?back to)"
_SLIP: Final = (
    r"sorry|oops|whoops|correction|my (?:bad|mistake)|typo|no,? wait|wait,? no|wait|hang on|hold on"
)
_MARKS: Final = r"[,.:;，。—–-]+\s*"
_ENDS: Final = r"(?: now)?[\s.!。！]*(?:$|[,，;；—–])"
CHOSEN: Final = re.compile(
    rf"(?:\b(?:scratch|scrap|strike) that{_MARKS}{_NAMED}{_ENDS}"
    rf"|\b(?:{_OFF}){_MARKS}{_TAKE} {_NAMED}\b"
    rf"|(?:^|[,;.，。—–] ?)(?:(?:ok|okay|so|then|and|no|nah|fine|alright|actually),? )*{_NAME}"
    rf" (?:it is|instead){_ENDS})"
)
"""What is taken in the place of what was said before."""
VALUED: Final = re.compile(
    rf"(?:\b(?:make|call) (?:that|it) {VALUE}|(?:\b(?:{_SLIP})|^no(?:pe)?){_MARKS}"
    rf"(?:yes,? |no,? |it's |it is "
    rf"|that's |make that |should be |i meant? )*(?:the )?{VALUE}{_ENDS})"
)
CHOSEN_CHINESE: Final = re.compile(
    r"(?:算了|改主意了?|想了想|scratch that)[，,。！!\s]+(?:还是|就|那就|改)?(?:用|上|走|选|换)?回?"
    r"\s?[a-z][\w.+#-]{1,30}(?: [a-z][\w.+#-]{1,20})?\s?(?:吧|了|好了)?[\s。！!]*$"
    r"|还是(?:用回|换回|改回|回到|切回)\s?[^\s，。！？,]{2,20}"
)
_WRONG: Final = r"(?:说错|记错|写错|看错|搞错|弄错|打错|手滑|口误|不对|更正|纠正)(?:了|一下)?"
VALUED_CHINESE: Final = re.compile(
    rf"{_WRONG}[，,。:！!\s]+(?:应该)?是?\s?(?:{VALUE})|(?:应该)?是\s?(?:{VALUE})\s?才对"
)
