"""Parses a question: its words, the people and dates it asks about, and whose messages it refers
to. Phrases such as "go on" ask for nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from recollect.core.search.dates import TimeWindow, windows_asked
from recollect.core.search.names import GERMAN_STOP_WORDS, is_german, names_in, speaker_words_asked
from recollect.core.search.statements import STANDING_WORD
from recollect.core.search.tokenize import tokenize
from recollect.core.values.recall import Asks, Candidate, RecallRequest

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
_QUESTION_CHARS: Final = 300
"""A longer message counts as a statement, even if it ends with a question."""
_QUESTION_MARKS: Final = ("?", "？")
_SENTENCE_ENDS: Final = re.compile(r"(?<=[?？。！])|(?<=[.!…])\s+|\n+")
# "the crane is green?" is a statement: in a question, the verb comes first
_ASKS: Final = re.compile(
    r"""什么|哪|谁|多少|几|怎么|怎样|为何|是否|何时|呢|(?<![对是])吗
    |^\W*(?:[\w'’]+\W+){0,3}?(?:what|which|who|whom|whose|when|where|why|how)(?:['’]s)?\b
    |^\W*(?:(?:and|so|but|or|also|then|hi|hey|hello|ok|okay|sorry|please|now)\W+){0,2}
     (?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|shall|should|may|might
       |must)(?:n['’]t)?\b
    |^\W*(?:(?:und|aber|also|auf|in|an|mit|von|für|bei|seit|bis|aus|zu)\W+)?(?:wann|wer|we[mn]|was
       |welche[mnrs]?|warum|wieso|weshalb|wie|wo(?:her|hin|mit|für|bei|gegen|ran|rum)?|ist|sind|hat
       |habe?n?|kann|können|soll|sollen|wird|gibt)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_ECHO_SHARE: Final = 0.8
"""A passage repeats the question only if it has at least this share of the question's words."""
_KEEPS_GOING: Final = re.compile(
    r"\s*(?:好的?|好吧|继续|谢谢|多谢|可以|嗯+|行|没问题|收到|对的?|是的?|不用了?|下一步|はい|了解|ありがとう"
    r"|続けて|네|감사합니다|계속)(?:[\s,，。.!！~吧呀啊了地]|继续|谢谢)*"
)


def substance(text: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that a message is about; empty if it only says to continue."""
    if _KEEPS_GOING.fullmatch(text):
        return ()
    return tuple(word for word in words if word not in _FILLER_WORDS)


def subject(text: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that a question is about, without words for the kind of its answer, such as
    "number" in "which number"."""
    subject_words = substance(text, words)
    return tuple(word for word in subject_words if word not in _ANSWER_KINDS) or subject_words


def is_echo(question: Question, candidate: Candidate) -> bool:
    """Return whether a passage only repeats the question."""
    if len(candidate.counts) < int(_ECHO_SHARE * len(question.words)):
        return False  # checked first, because it excludes most candidates
    word_counts = [candidate.counts.get(word, 0) for word in question.words]
    if candidate.length == question.length == sum(word_counts):
        return True
    share = sum(map(bool, word_counts)) / max(1, len(word_counts))
    return (
        candidate.role == "user" and share >= _ECHO_SHARE and candidate.length <= sum(word_counts)
    )


def only_asks(text: str) -> bool:
    """Return whether a message contains only questions, in English, German or Chinese. Unclear
    messages return False."""
    if len(text) > _QUESTION_CHARS or not text.rstrip().endswith(_QUESTION_MARKS):
        return False
    sentences = [sentence.strip() for sentence in _SENTENCE_ENDS.split(text)]
    worded_sentences = [
        sentence for sentence in sentences if substance(sentence, tuple(tokenize(sentence)))
    ]
    return bool(worded_sentences) and all(
        sentence.endswith(_QUESTION_MARKS) and _ASKS.search(sentence) is not None
        for sentence in worded_sentences
    )


# Questions about the assistant's messages. The user's own must not be ranked above them.
_ASKS_ASSISTANT: Final = re.compile(
    r"""\b(?:did|had|have)\ you\ (?:\w+\ )?(?:recommend|suggest|mention|advise|provide
        |give|gave|list|explain|propose|describe|say|said|tell|told|write|wrote|recommended|suggested
        |mentioned|provided)
    |\byou\ (?:had\ |have\ |previously\ |just\ )?(?:said|told|suggest|suggested
        |recommend|recommended|mentioned|advise|advised|provided|gave|listed|explained|proposed|described|wrote)\b
    |\byour\ (?:suggestion|recommendation|advice|answer|response|explanation|list|reply|proposal
        |previous|earlier|last)
    |\bremind\ me\b
    |\b(?:previous|earlier|last)\ (?:chat|conversation|discussion|answer)
    |\bwalk\ me\ through\ how\ you
    |你(?:之前|刚才|上次|曾)?(?:说|建议|推荐|提到|给)""",
    re.IGNORECASE | re.VERBOSE,
)
# Explicit questions about earlier messages.
_ASKS_PAST: Final = re.compile(
    r"""\b(?:remind\ me(?!\ to\b)
        |do\ you\ (?:remember|recall|know\ (?:what|which|who|when|where|why|how))
        |(?:as|like|what|which|how|when|where|why|who|that)\ (?:we|i)\ (?:\w+\ )?(?:had\ )?
          (?:said|told|agreed|decided|settled|chose|picked|discussed|talked|mentioned|planned|wanted)
        |(?:did|had|have)\ (?:we|i|you)\b
        |(?:we|i|you)\ (?:had\ |have\ |already\ |once\ |originally\ )?
          (?:agreed|decided|settled|discussed|talked\ about|mentioned|told\ you|said|suggested
            |recommended|proposed|found\ out)
        |(?:earlier|previously|last\ time|back\ then|the\ other\ day|so\ far|originally|once\ more
          |in\ the\ past|before\ that|already)
        |(?:what|which|who|whom|when|where|how\ \w+)\ (?:was|were|had)
        |was\ (?:that|it)\ again|again\ \?|left\ for\ later)\b
    |之前|上次|上回|刚才|以前|当时|曾经|还记得|提醒我|我们(?:决定|说|商量|约定|定)|我(?:说过|告诉过)|你说过""",
    re.IGNORECASE | re.VERBOSE,
)
# Questions about recent actions, which are in the request: "what did I just run?".
_ASKS_LATEST: Final = re.compile(
    r"\b(?:did|have|has|had|was|were)\ (?:i|we|you|he|she|it|they|that)\ just\b|\bjust\ now\b"
    r"|刚刚",
    re.IGNORECASE | re.VERBOSE,
)
# Orders that ask for earlier messages: "remind me which host it was", "list all decisions".
_REMINDS: Final = re.compile(
    r"\bremind\ me\b(?!\ to\b)"
    r"|\b(?:list|show|give|tell|name|recap|summari[sz]e|sum\ up|repeat)\b.{0,60}"
    r"\b(?:all|every|everything|decisions?|decided|agreed|we|again|so\ far|left\ (?:for|to\ do)"
    r"|told|said|open)\b"
    r"|提醒我|列出|总结",
    re.IGNORECASE | re.VERBOSE,
)
# Orders to repeat the past: "can you walk me through the order in which I brought up …".
_RECOUNTS: Final = re.compile(
    r"\b(?:list|recap|summari[sz]e|sum\ up|summary|overview|walk\ me\ through)\b.{0,40}"
    r"\b(?:(?:i|we)\ (?:brought|mentioned|asked|talked|said|told)|how\ (?:i|we|my|our))\b",
    re.IGNORECASE | re.VERBOSE,
)
# Work that needs shared knowledge: "our definition", "as told", "a page on: who runs it, …".
_REFERS: Final = re.compile(
    r"\b(?:our|my|your\ own|usual|agreed|as\ (?:always|told|before|discussed|planned|decided)"
    r"|the\ way\ (?:i|we)|like\ (?:last\ time|before)|(?:the\ )?same\ (?:as|way)|where\ it\ belongs"
    r"|whoever|allowed|supposed\ to|i\ need\ (?:the|their|our|his|her))\b"
    r"|[:,;]\s*(?:and\s+)?(?:which|who|what|when|where|how|why)\b|:\s[^:,\n\d]{2,60},[^:,\n\d]{2,60},"
    r"|我们的|老规矩|像上次|照旧",
    re.IGNORECASE | re.VERBOSE,
)
# Orders that look like a question.
_ORDERS: Final = re.compile(
    r"\W*(?:(?:please|pls|ok|okay|hey|hi|and|so|now|then|also)\b\W*)*"
    r"(?:can|could|would|will)\ you\b(?!\ (?:please\ )?(?:remind|tell|remember|recall|say))",
    re.IGNORECASE | re.VERBOSE,
)
# First words of questions without a question mark.
_BEGINS_AS_QUESTION: Final = re.compile(
    r"\W*(?:(?:and|so|but|or|also|then|hi|hey|hello|ok|okay|sorry|please|now|btw|actually|wait|hm+"
    r"|explain|tell\ me)"
    r"\b\W*)*(?:(?:at|in|on|by|for|from|to|until|since|under|with|about|after|before)\ )?"
    r"(?:what|which|who|whom|whose|when|where|why|how|whats|wheres|whos)(?:['’](?:s|re|d))?\b"
    r"|\W*(?!don['’]?t\b|have\ an?\b|do\ (?:the|an?|it|that|this|all)\b)"
    r"(?:is|are|was|were|do|does|did|has|have|had|should|may|must)(?:n['’]t)?\ (?!not\b)\w+",
    re.IGNORECASE,
)
# Questions about the present, which an agent answers with its tools: "what's on this week?".
_ASKS_PRESENT: Final = re.compile(
    r"\b(?:now|today|tonight|currently|at\ the\ moment"
    r"|this\ (?:morning|afternoon|evening|week|month))\b|现在|今天|目前|这周|本周|本月",
    re.IGNORECASE | re.VERBOSE,
)
# Orders after a question that say how to find the answer: "use the query log".
_FINDS_OUT: Final = re.compile(
    r"\W*(?:(?:please|just|and|then)\b\W*)*"
    r"(?:use|sort|group|count|plot|check|search|query|grep|run|look)\b",
    re.IGNORECASE,
)
_ASKS_IN_CHINESE: Final = re.compile(
    "什么|哪|谁|多少|几[个点时次]|怎么|怎样|为何|是否|何时|呢[?？]?$|吗[?？]?$"
)
_LISTS: Final = re.compile(
    r"\b(?:list|all|every|everything|each|which\ (?:\w+\ )?\w{2,}[^s\W]s"
    r"\ (?:do|did|are|were|have|had|we|i|you|should|can|need)"
    r"|summari[sz]e|recap|overview|sum\ up)\b"
    r"|所有|全部|列出|哪些|总结",
    re.IGNORECASE,
)
# Words that refer to something that was named before.
_LEANS: Final = re.compile(
    r"^\W*(?:since\ when|until\ when|which(?:\ one)?|(?:what|who|anything)\ else|by\ whom"
    r"|for\ whom|with\ what|where|when|who|how\ (?:much|many|long|often|far|big))\W*$"
    r"|^\W*(?:and|but|or|also)\b|^\W*(?:what\ about|how\ about|because)\b"
    r"|^\W*(?:why|how\ come)(?:\W+\w+){0,2}\W*$"
    r"|\b(?:that|this|those|these|there|ones?|same"
    r"|others?|former|latter|instead|alternative|both|either|exactly|then|else)\b",
    re.IGNORECASE | re.VERBOSE,
)
# The same words if they refer to nothing earlier: "these days", "which shop was it where …".
_POINTS_NOWHERE: Final = re.compile(
    r"\b(?:this|these|that)\ (?:morning|afternoon|evening|night|day|days|week|weekend|month|year"
    r"|time|way|kind|sort)\b|\b(?:is|was)\ it\ (?:that|where|who|which|when)\b|\bnow\ then\b"
    r"|\bso\ that\b|\bone\ of\b|\bif\ (?:it|that)['’]s\b|\bthere\ (?:is|are|was|were)\b"
    r"|\b(?:is|are|was|were)\ there\b|\bstill\ there\b"
    r"|\b(?:is|was)\ it\ \w+\ (?:to|for|if|when|that)\b"
    r"|\b(?:can|could|do(?:es)?|may|must|should|would)\ one\b",
    re.IGNORECASE | re.VERBOSE,
)
_PRONOUNS: Final = re.compile(
    r"\b(?:it|its|it['’]s|them|they|their|he|she|him|his|her|hers)\b", re.IGNORECASE
)
_OF_PEOPLE: Final = re.compile(r"he|she|him|his|hers?", re.IGNORECASE)
_NAMED_BEFORE: Final = 2
"""With this many words before its first pronoun, a sentence itself names what the pronoun means."""
_LEANS_IN_CHINESE: Final = re.compile(
    "^(?:那|为什么|为何|还有|然后)|[它他她]|这个|那个|[^什怎]么呢"
)
_LETTERS: Final = re.compile(r"[^\W\d_]+|\d+")
_MOST_LEANING_WORDS: Final = 14  # not measured; longer ones name their subject
_SENTENCES: Final = re.compile(r"(?<=[?？。！])\s*|(?<=[.!…])\s+|\n+")
_ASKING_CHARS: Final = 600  # not measured; longer messages order work
_CLAUSES: Final = re.compile(
    r"[,;]\s+(?:(?:and|but|so)\s+)*"
    r"(?=(?:can|could|would|will|should|how|what|why|do|does|did|is|are|any)\b)",
    re.IGNORECASE,
)
_ASKING_WORDS: Final = 60
"""Number of words. A longer message itself names its topic, and a question in it may be pasted."""
_END_WORDS: Final = 64
"""Number of words at each end of a pasted text that show its topic."""
_MOST_MARKS: Final = 24  # not measured; bounds the query
_END_CHARS: Final = 4_000  # not measured; bounds the words read


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A parsed question."""

    words: tuple[str, ...] = field(repr=False)
    speakers: tuple[str, ...] = field(default=(), repr=False)
    windows: tuple[TimeWindow, ...] = ()
    asks_assistant: bool = False
    is_for_tools: bool = False
    length: int = 0
    text: str = field(default="", repr=False)
    asks: Asks = "other"

    @property
    def marks(self) -> tuple[str, ...]:
        """Index words to search in addition, for standing instructions, speakers and dates."""
        dates = [word for window in self.windows for word in window.words]
        return tuple(dict.fromkeys([STANDING_WORD, *self.speakers, *dates]))[:_MOST_MARKS]


def question_text(request: RecallRequest) -> str:
    """Return the text to search for: the newest message, after the message that it refers to. If
    the request has no gate, return all messages of the query."""
    text = request.newest if request.gated and request.newest else request.query
    if request.gated and request.refers_to:
        text = f"{request.refers_to}\n{text}"
    if len(text) <= 2 * _END_CHARS:
        return text
    return f"{text[:_END_CHARS]}\n{text[-_END_CHARS:]}"


def read_question(
    text: str, *, asked_at: float, newest: str = "", asks: Asks | None = None
) -> Question:
    """Parse a question. `newest` is the message that asks, if the text contains more messages.
    `asks` is the message's intent, if known."""
    words = tokenize(text)
    common = GERMAN_STOP_WORDS if is_german(text) else frozenset()
    return Question(
        words=_ends(tuple(word for word in dict.fromkeys(words) if word not in common)),
        length=len(words),
        speakers=speaker_words_asked(text),
        windows=windows_asked(text, asked_at=asked_at),
        asks_assistant=_ASKS_ASSISTANT.search(text) is not None,
        is_for_tools=is_for_tools(newest or text),
        text=text,
        asks=what_asks(newest or text) if asks is None else asks,
    )


def what_asks(text: str) -> Asks:
    """Return the intent of a message. A long message that ends with "can you help me with that?"
    needs no memory, because it contains its own topic."""
    long = _tells_itself(text)
    if len(text) > _ASKING_CHARS:
        text = f"{text[: _ASKING_CHARS // 2]}\n{text[-_ASKING_CHARS // 2 :]}"
    asking: Asks = "other"
    for part in filter(None, map(str.strip, _SENTENCES.split(text))):
        is_marked = part.endswith(("?", "？"))
        sentence = _asking_clause(part) if is_marked else part
        if _ORDERS.match(sentence):
            if _RECOUNTS.search(sentence):
                return "question"
            continue
        if _ASKS_LATEST.search(sentence):
            continue
        if is_marked or _BEGINS_AS_QUESTION.match(sentence) or _ASKS_IN_CHINESE.search(sentence):
            if _ASKS_PAST.search(sentence):  # asks for memory, however long the message is
                return "question"
            asking = "question"
        elif _REMINDS.search(sentence):
            return "question"
        elif asking == "other" and _REFERS.search(sentence):
            asking = "reference"
    return "other" if long else asking


def is_for_tools(text: str) -> bool:
    """Return whether an agent answers this with its tools: a question about the present ("is it
    green now?"), or one that says how to find the answer ("which is slowest? sort them")."""
    if len(text) > _ASKING_CHARS or _ASKS_PAST.search(text):
        return False
    later = _SENTENCES.split(text)[1:]
    return _ASKS_PRESENT.search(text) is not None or any(map(_FINDS_OUT.match, later))


def _asking_clause(sentence: str) -> str:
    if _BEGINS_AS_QUESTION.match(sentence):
        return sentence
    clauses = list(_CLAUSES.finditer(sentence))
    return sentence[clauses[-1].end() :] if clauses else sentence


def _tells_itself(text: str) -> bool:
    unspaced = sum(character > "\u2e7f" for character in text[: 8 * _ASKING_WORDS])
    return len(text.split()) + unspaced // 2 > _ASKING_WORDS


def asking_part(text: str) -> str:
    """Return the sentences of a message that end as questions, else the whole message. In "what is
    the meter's number? the supplier wants it", only the first sentence asks."""
    questions = [
        sentence for sentence in _SENTENCES.split(text) if sentence.rstrip().endswith(("?", "？"))
    ]
    return "\n".join(questions) or text


def needs_context(text: str) -> bool:
    """Return whether a message is unclear without the one before: "why?", "and who owns it?"."""
    words = _LETTERS.findall(text)
    if not words or len(words) > _MOST_LEANING_WORDS:
        return False
    if _LEANS_IN_CHINESE.search(text):
        return True
    if what_asks(text) != "question":
        return False
    text = _POINTS_NOWHERE.sub(" ", text)
    pronoun = _PRONOUNS.search(text)
    if pronoun is not None:
        so_far = text[: pronoun.start()]
        before, _, _ = so_far.rpartition(",")
        set_off = len(substance(before, tuple(tokenize(before)))) >= _NAMED_BEFORE
        names_person = _OF_PEOPLE.fullmatch(pronoun[0]) and names_in(so_far)
        # "when did Ada lose her keys?" itself names whom the pronoun means
        if not set_off and not names_person:
            return True
    return _LEANS.search(text) is not None


def wants_list(text: str) -> bool:
    return len(text) <= _ASKING_CHARS and _LISTS.search(text) is not None


def _ends(words: tuple[str, ...]) -> tuple[str, ...]:
    return words if len(words) <= 2 * _END_WORDS else words[:_END_WORDS] + words[-_END_WORDS:]
