"""Checks a claim of a model: whether the quoted words support it, and whether their author may
state it. Exact values and enough other words must be in the quotation. Questions, conjectures,
secrets and contradictions support nothing. A claim that repeats a tool's words has the tool's
trust, so it cannot be a preference, a decision or an order. Reasons for a refusal quote nothing."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Final, TypeAlias
from unicodedata import normalize

from recollect.core.rules.redaction import redact
from recollect.core.rules.secret_values import MASK_OPENING
from recollect.core.rules.text import statement_spans
from recollect.core.rules.trust import is_below, lowest_trust
from recollect.core.search.identifiers import shapes_in
from recollect.core.search.names import names_in
from recollect.core.search.question import substance
from recollect.core.search.tokenize import STOP_WORDS, is_unspaced_pair, tokenize
from recollect.core.values.fact import EXTRACTED_TYPES, FactDraft, FactType
from recollect.core.values.segment import Segment, Trust

LEAST_WORD_CHARS: Final = 4  # shorter quotes are found anywhere
BEFORE_CHARS: Final = 600  # not measured; bounds the search for a sentence
_SAME: Final = str.maketrans("“”„‘’，；：！？（）", '"""\'\',;:!?()', " \t\r\n\u00a0\u3000\u200b*`")
_CUT_SHORT: Final = " .…\"'“”‘’`*"


def find_quote(quote: str, text: str, end: int) -> tuple[int, int]:
    """Return the span of a quotation in the text before `end`; (0, 0) if it is not there."""
    plain_quote = _normalize(quote.strip(_CUT_SHORT))
    if len(plain_quote) + 2 * sum(not sign.isascii() for sign in plain_quote) < LEAST_WORD_CHARS:
        return (0, 0)
    offset = _normalize(text[:end]).find(plain_quote)
    if offset < 0:
        return (0, 0)

    def place(plain_at: int) -> int:
        return bisect_right(
            range(end), plain_at, key=lambda last: len(_normalize(text[: last + 1]))
        )

    return (place(offset), place(offset + len(plain_quote) - 1) + 1)


def _normalize(text: str) -> str:
    """Return a text without white space and Markdown, in lower case and with straight quotes."""
    return text.translate(_SAME).casefold()


def sentences_around(text: str, start: int, end: int, *, last: int) -> tuple[int, int]:
    """Return the span of the sentences that overlap `start` to `end`, not reading beyond `last`."""
    overlapping = [
        (begin, stop)
        for begin, stop in statement_spans(text, 0, min(last, len(text)))
        if begin < end and start < stop
    ]
    return (overlapping[0][0], overlapping[-1][1]) if overlapping else (start, end)


def sentence_before(text: str, start: int) -> str:
    """Return the sentence before the one that begins at `start`; empty if there is none."""
    spans = list(statement_spans(text, max(start - BEFORE_CHARS, 0), start))
    return text[spans[-1][0] : spans[-1][1]] if spans else ""


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in statement_spans(text, 0, len(text))]


WORDS_SHARE: Final = 0.6  # not measured; models rephrase a part of the words
MOST_CHARS: Final = 400  # not measured; longer statements are several facts
_LEAST_WORDS: Final = 2  # one word in common is chance
_HEADING_WORDS: Final = 5  # not measured
_DENIED_SHARE: Final = 0.5  # not measured; more than half
_SPOKEN_OF_SHARE: Final = 0.34  # not measured; a third of the words

_NUMBERS: Final = re.compile(r"\d+(?:[.:,_/-]\d+)*")
_TERMS: Final = re.compile(r"`([^`\n]{2,80})`")
_DENIES: Final = re.compile(
    r"\b(?:not|never|no|none|nor|neither|cannot|without|\w+n['’]t|dont|doesnt|isnt|cant|wont"
    r"|no\ longer|instead\ of|rather\ than|avoid(?:s|ing)?|stop(?:s|ped)?\ using|forget"
    r"|drop(?:ped)?|away\ from)\b"
    r"|(?<![差要毫])不(?![过過错錯同仅僅但管论論断斷久])|没(?!问题)|沒(?!問題)"
    r"|(?<![特级級类類分区區个個差性])[别別](?![的人处處名])|勿|未(?![来來])|无(?![论])|無(?![論])|禁止|非(?!常)",
    re.IGNORECASE | re.VERBOSE,
)
_CLAUSE_ENDS: Final = re.compile(
    r"[,;:.!?](?=\s|$)|[()，。；：、！？（）—–]|\s-\s|\b(?:but|and|because|so|since|while|instead|just)\b|而是|但是?|改用|而"
    r"|(?<=\w)\s+(?=not\s+(?:\d|the\b|on\b|in\b|at\b|[A-Z]))"
)
_CONJECTURES: Final = re.compile(
    r"\b(?:maybe|perhaps|possibly|probably|presumably|supposedly|might|what\ if|should\ (?:we|i)"
    r"|(?:we|i|you|one)\ could|could\ (?:we|be)|wonder(?:ing)?|not\ (?:quite\ )?sure|unsure"
    r"|no\ idea|thinking\ (?:about|of)|tempted|considering|hypothetically|i\ guess|imagine|suppose"
    r"|in\ theory|in\ my\ (?:last|old|previous)\ job|some\ ?day|would\ be\ (?:nice|cool|great))\b"
    r"|也许|也許|或许|或許|可能|大概|说不定|說不定|要不要|要不(?!然)|是不是|会不会|會不會|估计|估計"
    r"|[在还還也]考[虑慮]|考[虑慮](?:用|换|換|要不要|是否)|假如|假设|假設|万一|不确定|不確定|好像|似乎|不如",
    re.IGNORECASE | re.VERBOSE,
)
_QUESTION_ENDS: Final = ("?", "？", "吗", "嗎", "呢")

_Clause: TypeAlias = tuple[frozenset[str], bool]
"""The words of a clause, and whether the clause denies something."""


def is_supported(content: str, spans: Sequence[str], *, context: str = "") -> bool:
    """Return whether these spans of messages support the statement `content`. Names and words may
    come from `context` ("it listens on 8443"), but numbers may not."""
    return (
        _may_be_fact(content, spans)
        and _has_exact_values(content, spans, context)
        and _has_words(content, spans, context)
        and _agrees_in_denial(content, " ".join(spans))
    )


def is_anchored(content: str, quote: str) -> bool:
    """Return whether a statement has exact values and the quotation contains all of them."""
    text = _fold(quote)
    numbers = set(_NUMBERS.findall(_fold(content)))
    terms = [_fold(term) for term in _TERMS.findall(content)]
    has_values = numbers or terms or any(shapes_in(content)) or any(names_in(content))
    if not has_values or len(content_words(content)) <= _LEAST_WORDS:
        return False
    return (
        numbers.issubset(_NUMBERS.findall(text))
        and all(term in text for term in terms)
        and _has_exact_values(content, [quote], "")
    )


def _may_be_fact(content: str, spans: Sequence[str]) -> bool:
    """Return whether the text is one statement without a secret, and a span states something."""
    words = content.casefold().split()
    is_heading = content.isascii() and len(words) < _HEADING_WORDS and STOP_WORDS.isdisjoint(words)
    return (
        any(span.strip() for span in spans)
        and len(content) <= MOST_CHARS
        and len(content_words(content)) >= _LEAST_WORDS
        and not is_heading
        and not any(MASK_OPENING in text for text in (content, *spans))
        and not redact(content).spans
        and not _asks(content)
        and not all(all(map(_asks, sentences(span))) for span in spans if span.strip())
        and not any(_CONJECTURES.search(span) for span in spans)
    )


def states_nothing(sentence: str) -> bool:
    """Return whether a sentence supports nothing: it is too short, a question or a conjecture."""
    return (
        len(content_words(sentence)) < _LEAST_WORDS
        or _asks(sentence)
        or _CONJECTURES.search(sentence) is not None
    )


def _asks(sentence: str) -> bool:
    return sentence.rstrip(" \"'”’)）*_~。.").endswith(_QUESTION_ENDS)


def _has_exact_values(content: str, spans: Sequence[str], context: str) -> bool:
    text = _fold("\n".join(spans))
    context_text = f"{text}\n{_fold(context)}"
    numbers = set(_NUMBERS.findall(text))
    numbers |= {piece for number in numbers for piece in re.split(r"[.:,_/-]", number)}
    words = {*tokenize(context_text), *tokenize("\n".join((*spans, context)))}
    return (
        numbers.issuperset(_NUMBERS.findall(_fold(content)))
        and all(_fold(shape) in context_text for shape in shapes_in(content))
        and all(max(name, key=len) in words for name in names_in(content))
    )


def _has_words(content: str, spans: Sequence[str], context: str) -> bool:
    wanted_words = content_words(content)
    own_words = wanted_words & content_words("\n".join(spans))
    shared_count = len(own_words) + len((wanted_words - own_words) & content_words(context))
    # the sentence itself must support it; a neighbor would support nearly any claim
    return shared_count >= WORDS_SHARE * len(wanted_words) and len(own_words) * 2 >= shared_count


def content_words(text: str) -> frozenset[str]:
    """Return a text's meaningful words: stems, or character pairs in scripts without spaces."""
    words = tokenize(text)
    return frozenset(
        word
        for word in substance(text, tuple(words))
        if len(word) > 1 or word.isascii() or not is_unspaced_pair(word * 2)
    )


def _agrees_in_denial(content: str, text: str) -> bool:
    if _DENIES.search(content) and not _DENIES.search(text):
        return False
    claim_clauses, source_clauses = _clauses(content), _clauses(text)
    return not (
        _contradicts(claim_clauses, source_clauses) or _contradicts(source_clauses, claim_clauses)
    )


def _contradicts(clauses: Sequence[_Clause], other_clauses: Sequence[_Clause]) -> bool:
    """Return whether a clause denies words that the others affirm, or the reverse."""
    denied_words = {word for words, denies in other_clauses if denies for word in words}
    affirmed_words = {word for words, denies in other_clauses if not denies for word in words}
    for words, denies in clauses:
        shared_words = words & (denied_words | affirmed_words)
        if not denies or len(shared_words) < _SPOKEN_OF_SHARE * len(words):
            continue
        if len(shared_words & (affirmed_words - denied_words)) > _DENIED_SHARE * len(shared_words):
            return True
    return False


def _clauses(text: str) -> list[_Clause]:
    pieces = [piece for piece in _CLAUSE_ENDS.split(text) if piece and piece.strip()]
    return [
        (content_words(_DENIES.sub(" ", piece)), _DENIES.search(piece) is not None)
        for piece in pieces
    ]


def _fold(text: str) -> str:
    return " ".join(normalize("NFKC", text).casefold().replace("`", "").split())


_SAYS: Final = re.compile(
    r"""
    \b(?:must|always|never|shall|should|ought|need(?:s|ed)?\ to|ha(?:ve|s)\ to|required?\ to
    |do\ not|don['’]?t|please|ensure|make\ sure|be\ sure|remember|memori[sz]e|note\ (?:that|to|down)
    |keep\ in\ mind|take\ note|from\ (?:now|here)\ on|going\ forward|henceforth|in\ (?:the\ )?future
    |whenever|every\ time|each\ time|any\ ?time|ignore|disregard|forget|overrid(?:e|es|den)|bypass
    |supersedes?|instead\ of|instructions?|instructed|prompts?|jailbreak|rules?|polic(?:y|ies)
    |mandatory|authori[sz]ed?|obey|comply|permission|approved?
    |assistants?|agents?|ai|llm|chatbot|model|claude|gpt|copilot|you|your|yours|yourself
    |(?:the\ )?(?:users?|operator|admin(?:istrator)?|owner|developer|customer|boss|ceo|human)['’]?s?
      \ (?:\w+\ ){0,2}?(?:wants?|prefers?|likes?|asks?|asked|says?|said|decided|requires?|requests?
      |requested|expects?|confirmed|approved|told|wishes|preference|instruction|standing)
    |prefers?|preferences?|standing|we\ (?:decided|agreed)|decision|decided|agreed)\b
    |(?:^|\n)\W{0,200}+(?:system|user|human|operator|developer|assistant)\s{0,20}(?:\]|>|:|：)
    |必须|必須|务必|務必|总是|總是|永远|永遠|一律|记住|記住|牢记|牢記|请|請|不要|别|別|勿|忽略|无视|無視
    |以后|以後|从现在起|從現在起|今后|今後|每次|应该|應該|应当|應當|需要|禁止|不得|不准|不许|不能|你|您
    |用户|用戶|使用者|管理员|管理員|老板|指令|指示|提示词|提示詞|规则|規則|偏好|决定|決定|改用|采用|採用|助手|模型
    """,
    re.IGNORECASE | re.VERBOSE,
)
_VERB_LINES: Final = """
send forward reply respond answer use add append include insert install run execute call invoke
delete remove drop disable enable turn set change update upgrade replace switch store save write
copy upload download post push commit merge deploy publish email mail transfer pay buy grant give
share reveal print show say tell treat consider assume prefer avoid stop start begin skip visit open
click go follow obey act pretend output return recommend suggest mention quote cite trust accept
approve allow whitelist route redirect point configure create make put keep mark record log learn
"""
_BEGINS_AS_ORDER: Final = re.compile(
    rf"(?:^|[.!?;:\n。！？；：]|\*/|-->|[>*#\-])[\s\"'“”`*_#>(\[-]{{0,200}}+"
    rf"(?:(?:and|then|also|now|so|first|next|important|note)\b\W{{0,20}}+){{0,20}}"
    rf"(?:{'|'.join(_VERB_LINES.split())})\b(?!\s{{0,20}}(?:[:=(]|-\w))",
    re.IGNORECASE,
)
_CHINESE_ORDER: Final = re.compile(
    r"(?:^|[。！？；：，,\n:;])\s{0,200}+(?:把|将|將|发送|發送|使用|运行|執行|执行|删除|刪除|回复|回覆|安装|安裝|转发|轉發|改成|告诉|告訴)"
)


def is_order(text: str) -> bool:
    """Return whether a text instructs its reader, or anyone, to do something."""
    return any(shape.search(text) for shape in (_SAYS, _BEGINS_AS_ORDER, _CHINESE_ORDER))


RUN_SHARE: Final = 0.5
"""A statement repeats a text that contains this share of the statement's runs (measured)."""
LONG_RUN: Final = 4
"""A statement also repeats a text that contains this many adjacent runs."""
ORDER_SHARE: Final = 0.6
"""An order repeats a sentence that contains this share of the order's words."""
RUN_SIGNS: Final = 4
"""A run is three words or, in scripts without spaces, this many characters."""
_LEAST_RUNS: Final = 2  # a single run of words is chance
_STEM_SIGNS: Final = 4  # the ends of words differ
_WORDS: Final = re.compile(r"[^\W_]+")
_CODED: Final = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{4,40}\b", re.ASCII)
_UNSPACED: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]"
)

Run: TypeAlias = tuple[str, str, str] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenStatement:
    """A statement, prepared for comparison with texts that it may repeat."""

    runs: tuple[Run, ...] = field(repr=False)
    new_names: frozenset[str] = field(repr=False)
    """Names in the statement that no user mentioned before."""
    is_order: bool
    words: frozenset[str] = field(repr=False)


def read_statement(text: str, earlier: Sequence[str] = ()) -> SpokenStatement:
    """Prepare a statement. `earlier` are earlier messages of users, in lower case."""
    names = (
        *map(str.casefold, shapes_in(text)),
        *(word.casefold() for word in _CODED.findall(text)),
        *(max(name, key=len) for name in names_in(text)),
    )
    return SpokenStatement(
        runs=tuple(_runs(text.casefold())),
        new_names=frozenset(
            name for name in names if not any(name in message for message in earlier)
        ),
        is_order=is_order(text),
        words=content_words(text),
    )


class ReadText:
    """A text that the author of a statement may have read, prepared for comparison."""

    def __init__(self, text: str, statements: Sequence[SpokenStatement]) -> None:
        self._text = text
        self._folded_text = text.casefold()
        self._vocabulary = frozenset[str]().union(*(statement.words for statement in statements))
        wanted_runs = frozenset[Run]().union(*(statement.runs for statement in statements))
        self._runs = wanted_runs.intersection(_runs(self._folded_text))

    def is_repeated_by(self, statement: SpokenStatement, *, outside: bool) -> bool:
        """Return whether a statement repeats the text. If a tool fetched the text (`outside`), or
        for an order, one new name in both is enough."""
        run_matches = self.find_runs(statement)
        in_a_row = max((sum(group) for _, group in groupby(run_matches)), default=0)
        if share(run_matches) >= RUN_SHARE or in_a_row >= LONG_RUN:
            return True
        is_named = any(name in self._folded_text for name in statement.new_names)
        if is_named and (statement.is_order or outside):
            return True
        return statement.is_order and self._has_sentence(statement.words)

    def find_runs(self, statement: SpokenStatement) -> list[bool]:
        """Return for each run of a statement whether the text contains it."""
        return [run in self._runs for run in statement.runs]

    def _has_sentence(self, wanted_words: frozenset[str]) -> bool:
        least = ORDER_SHARE * len(wanted_words)
        # most texts lack these words; splitting a long text into sentences takes time
        present = sum(word[:_STEM_SIGNS] in self._folded_text for word in wanted_words)
        if len(wanted_words) < _LEAST_RUNS or present < least:
            return False
        return any(len(wanted_words & words) >= least for words in self._sentences)

    @cached_property
    def _sentences(self) -> frozenset[frozenset[str]]:
        return frozenset(
            self._vocabulary & content_words(sentence) for sentence in sentences(self._text)
        )


def share(found: Sequence[bool]) -> float:
    """Return the share of true values; 0 if a statement has too few runs to decide."""
    return sum(found) / len(found) if len(found) >= _LEAST_RUNS else 0.0


def _runs(folded_text: str) -> Iterator[Run]:
    spaced_words: list[str] = []
    for word in _WORDS.findall(folded_text):
        if word.isascii() or not _UNSPACED.search(word):
            spaced_words.append(word)
        else:
            yield from (
                word[index : index + RUN_SIGNS] for index in range(len(word) - RUN_SIGNS + 1)
            )
    yield from zip(spaced_words, spaced_words[1:], spaced_words[2:], strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A draft of a fact, and the words that support it."""

    draft: FactDraft = field(repr=False)
    spans: tuple[str, ...] = field(repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.draft.content, *self.spans)))


def find_repeated_segments(
    proposals: Sequence[Proposed], neighbor_segments: Sequence[Segment]
) -> list[list[Segment]]:
    """Return per draft the less trusted segments before it whose words it repeats."""
    places = {segment.id: place for place, segment in enumerate(neighbor_segments)}
    users = [
        (place, segment.text.casefold())
        for place, segment in enumerate(neighbor_segments)
        if segment.trust == "high"
    ]
    own_ids = [{span.segment for span in proposal.draft.evidence} for proposal in proposals]
    before = [
        max((places[id_] for id_ in ids if id_ in places), default=len(neighbor_segments))
        for ids in own_ids
    ]
    statements = [
        [
            read_statement(
                text, [users_text for place, users_text in users if place < before[index]]
            )
            for text in proposal.texts
        ]
        for index, proposal in enumerate(proposals)
    ]
    repeated_by_draft: list[list[Segment]] = [[] for _ in proposals]
    for place, segment in enumerate(neighbor_segments):
        doubted_indexes = [
            index
            for index, proposal in enumerate(proposals)
            if place < before[index]
            and proposal.draft.trust != "high"
            and is_below(segment.trust, proposal.draft.trust)
            and segment.id not in own_ids[index]
        ]
        if not doubted_indexes:
            continue
        read = ReadText(
            segment.text,
            [statement for index in doubted_indexes for statement in statements[index]],
        )
        outside = segment.trust == "outside"
        for index in doubted_indexes:
            if any(
                read.is_repeated_by(statement, outside=outside) for statement in statements[index]
            ):
                repeated_by_draft[index].append(segment)
    return repeated_by_draft


_HOW_THINGS_ARE: Final[frozenset[FactType]] = frozenset({"implementation", "config", "issue"})
_STATABLE: Final[Mapping[Trust, frozenset[FactType]]] = {
    "high": frozenset(EXTRACTED_TYPES),
    "medium": frozenset(EXTRACTED_TYPES) - {"preference"},
    "low": _HOW_THINGS_ARE,
    "outside": _HOW_THINGS_ARE,
}
_BINDING: Final[frozenset[FactType]] = frozenset({"preference", "decision"})


def admit(
    proposals: Sequence[Proposed], neighbor_segments: Sequence[Segment], *, unseen_low: bool = False
) -> list[FactDraft]:
    """Return the drafts that their authors may state, with their trust. `around` are the segments
    of the page. `unseen_low` means that tools may have written even earlier messages, which a
    decision, preference or order may repeat."""
    drafts: list[FactDraft] = []
    for proposal, repeated_segments in zip(
        proposals, find_repeated_segments(proposals, neighbor_segments), strict=True
    ):
        draft = proposal.draft
        trust = lowest_trust([draft.trust, *(segment.trust for segment in repeated_segments)])
        orders = any(map(is_order, proposal.texts))
        binds = orders or draft.type in _BINDING
        if draft.type not in _STATABLE[trust] or (orders and trust in ("low", "outside")):
            continue
        if not (unseen_low and trust != "high" and binds):
            lineage = tuple(segment.id for segment in repeated_segments)
            drafts.append(replace(draft, trust=trust, lineage=lineage))
    return drafts
