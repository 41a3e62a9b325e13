"""Tells what a message asks about from what only keeps a conversation going.

"Sounds good, please continue" shares words with a hundred earlier messages and asks about none of
them; a question that was asked before answers nobody. Owns the lists of such words, what counts as
the same question again, and what only asks. Must never drop a word from a search: it only says
whether there is something to ask by, or to be told.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from recollect.search.tokenize import tokenize
from recollect.values.lookup import Candidate

if TYPE_CHECKING:
    from recollect.search.question import Question

_FILLERS: Final = """
ok okay yes yeah yep no nope sure fine good great nice cool perfect awesome excellent wonderful
thanks thank thx please welcome hello hi hey bye goodbye morning evening night again sorry
go going on continue proceed carry move next step thing things do did done doing make let lets
sounds sound looks look right correct exactly indeed agreed agree understood got it see know think
keep start stop wait try now then here there just also too very so much really more well maybe
help helps helped need want like would could should can will may might need me us
say said tell ask talk speak answer question idea way bit lot one two first last other another
take care soon later once today everything anything something nothing all any some
why how what when where who which and but because ready back up out over off
"""
_FILLER_WORDS: Final = frozenset(word for filler in _FILLERS.split() for word in tokenize(filler))
_ANSWER_KINDS: Final = frozenset(
    tokenize(
        "name names called number numbers value kind type sort date time day hour month year place"
        " person people reason amount size colour color version address title many much often long"
        " far"
    )
)
"""What is asked for, not what it is asked about: an answer gives a name without the word."""
_QUESTION_CHARS: Final = 300
"""A longer message says something, whatever it asks at its end."""
_QUESTION_MARKS: Final = ("?", "？")
_SENTENCE_ENDS: Final = re.compile(r"(?<=[?？。！])|(?<=[.!…])\s+|\n+")
# "the crane is green?" says something too: a verb asks where it stands first
_ASKS: Final = re.compile(
    r"""什么|哪|谁|多少|几|怎么|怎样|为何|是否|何时|呢|(?<![对是])吗
    |^\W*(?:[\w'’]+\W+){0,3}?(?:what|which|who|whom|whose|when|where|why|how)(?:['’]s)?\b
    |^\W*(?:(?:and|so|but|or|also|then|hi|hey|hello|ok|okay|sorry|please|now)\W+){0,2}
     (?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may|might
       |must)(?:n['’]t)?\b""",
    re.IGNORECASE | re.VERBOSE,
)
_ECHO_SHARE: Final = 0.8
"""Of the question's words, those that an earlier asking of it holds."""
_KEEPS_GOING: Final = re.compile(
    r"\s*(?:好的?|好吧|继续|谢谢|多谢|可以|嗯+|行|没问题|收到|对的?|是的?|不用了?|下一步|はい|了解|ありがとう"
    r"|続けて|네|감사합니다|계속)(?:[\s,，。.!！~吧呀啊了地]|继续|谢谢)*"
)


def substance(text: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a message that it is about; none where it only keeps the talk going."""
    if _KEEPS_GOING.fullmatch(text):
        return ()
    return tuple(word for word in words if word not in _FILLER_WORDS)


def subject(text: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that tell what a question is about, without those for the answer it wants."""
    about = substance(text, words)
    return tuple(word for word in about if word not in _ANSWER_KINDS) or about


def is_echo(question: Question, one: Candidate) -> bool:
    """Whether a passage is an earlier asking of the same: it says nothing that the question does
    not say."""
    held = [one.counts.get(word, 0) for word in question.words]
    if one.length == question.length and all(held):
        return True
    share = sum(map(bool, held)) / max(1, len(held))
    return one.role == "user" and share >= _ECHO_SHARE and one.length <= sum(held)


def only_asks(text: str) -> bool:
    """Whether a message holds questions and nothing else that is about anything.

    English and Chinese; in doubt it says something too.
    """
    if len(text) > _QUESTION_CHARS or not text.rstrip().endswith(_QUESTION_MARKS):
        return False
    sentences = [each.strip() for each in _SENTENCE_ENDS.split(text)]
    said = [each for each in sentences if substance(each, tuple(tokenize(each)))]
    return bool(said) and all(
        each.endswith(_QUESTION_MARKS) and _ASKS.search(each) is not None for each in said
    )
