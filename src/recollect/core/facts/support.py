"""Check a claim of a model: do the quoted words support it, and may their speaker state it? Exact
values and enough other words must be in the quotation. Questions, conjectures, secrets and
contradictions support nothing. A claim that repeats a tool's words has the tool's trust, so it
cannot be a preference, a decision or an order. Reasons for a refusal quote nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias
from unicodedata import normalize

from recollect.core.rules.redaction import redact
from recollect.core.rules.secret_values import MASK_OPENING
from recollect.core.rules.text import statement_spans
from recollect.core.rules.trust import is_below, lowest
from recollect.core.search.identifiers import shapes_in
from recollect.core.search.names import names_in
from recollect.core.search.question import substance
from recollect.core.search.tokenize import STOP_WORDS, is_unspaced_pair, tokenize
from recollect.core.values.fact import EXTRACTED_TYPES, FactDraft, FactType
from recollect.core.values.segment import Segment, SegmentId, Trust

LEAST_WORD_CHARS: Final = 4
BEFORE_CHARS: Final = 600
_BLOCK_CHARS: Final = 1_000
_SAME: Final = str.maketrans("“”„‘’，；：！？（）", '"""\'\',;:!?()', " \t\r\n\u00a0\u3000\u200b*`")
_CUT_SHORT: Final = " .…\"'“”‘’`*"


def find_quote(quote: str, text: str, end: int) -> tuple[int, int]:
    """Return the span of a quotation in the text before `end`; (0, 0) if it is missing."""
    wanted = _plain(quote.strip(_CUT_SHORT))
    if len(wanted) + 2 * sum(not sign.isascii() for sign in wanted) < LEAST_WORD_CHARS:
        return (0, 0)
    at = _plain(text[:end]).find(wanted)
    if at < 0:
        return (0, 0)
    return (_place(text, end, at), _place(text, end, at + len(wanted) - 1) + 1)


def _plain(text: str) -> str:
    return text.translate(_SAME).casefold()


def _place(text: str, end: int, at: int) -> int:
    for block in range(0, end, _BLOCK_CHARS):
        size = len(_plain(text[block : min(block + _BLOCK_CHARS, end)]))
        if at >= size:
            at -= size
            continue
        for place in range(block, end):
            at -= len(_plain(text[place]))
            if at < 0:
                return place
    return end


def sentences_around(text: str, start: int, end: int, *, last: int) -> tuple[int, int]:
    """Return the span of the sentences that this span overlaps, up to `last`."""
    reached = [
        (begin, stop)
        for begin, stop in statement_spans(text, 0, min(last, len(text)))
        if begin < end and start < stop
    ]
    return (reached[0][0], reached[-1][1]) if reached else (start, end)


def sentence_before(text: str, start: int) -> str:
    """Return the sentence before the one that begins here; empty if there is none."""
    spans = list(statement_spans(text, max(start - BEFORE_CHARS, 0), start))
    return text[spans[-1][0] : spans[-1][1]] if spans else ""


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in statement_spans(text, 0, len(text))]


WORDS_SHARE: Final = 0.6
MOST_CHARS: Final = 400
_LEAST_WORDS: Final = 2
_HEADING_WORDS: Final = 5
_DENIED_SHARE: Final = 0.5
_SPOKEN_OF_SHARE: Final = 0.34

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
_PLAINLY_DENIES: Final = re.compile(
    r"\b(?:not|never|no|none|cannot|without|\w+n['’]t|no\ longer|lacks?|missing|fail(?:s|ed|ing)?"
    r"|broken|unset|unsupported|blocked|disabled|expired|forbid(?:s|den)?|avoid|unable|absent|un\w{4,}"
    r"|stop(?:ped)?|drop(?:ped)?|remov(?:e|ed|es)|instead|rather|over|away)\b"
    r"|不|没|沒|别|別|勿|未|无|無|禁|非|失败|失敗|取消|下线|停",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clause:
    words: frozenset[str] = field(repr=False)
    denies: bool


def unsupported(content: str, spans: Sequence[str], *, context: str = "") -> str:
    """Return why these spans do not support `content`, without quoting it; empty if they do. Names
    and words may come from `context` ("it listens on 8443"), but numbers may not."""
    if found := _of_shape(content, spans) or _exact(content, spans, context):
        return found
    if not _worded(content, spans, context):
        return "too few of its words stand where it rests"
    if not _agrees_in_denial(content, " ".join(spans)):
        return "what it rests on says the opposite"
    return ""


def anchored(content: str, quote: str) -> bool:
    """Return whether all exact values of a statement are in a quotation. A heading has none."""
    text = _folded(quote)
    exact = [
        *_NUMBERS.findall(_folded(content)),
        *map(_folded, shapes_in(content)),
        *map(_folded, _TERMS.findall(content)),
    ]
    names = [max(name, key=len) for name in names_in(content)]
    if (not exact and not names) or len(content_words(content)) <= _LEAST_WORDS:
        return False
    return all(value in text for value in exact) and {*tokenize(quote), *tokenize(text)}.issuperset(
        names
    )


def _of_shape(content: str, spans: Sequence[str]) -> str:
    if not any(span.strip() for span in spans):
        return "it rests on nothing"
    if len(content) > MOST_CHARS:
        return "it is too long for one statement"
    if len(content_words(content)) < _LEAST_WORDS or _is_heading(content):
        return "it says too little"
    if MASK_OPENING in content or any(MASK_OPENING in span for span in spans):
        return "it is about a secret"
    if redact(content).spans:
        return "it holds a secret"
    if _asks(content):
        return "it is a question"
    if all(all(map(_asks, sentences(span))) for span in spans if span.strip()):
        return "it rests on a question"
    if any(_CONJECTURES.search(span) for span in spans):
        return "it rests on a conjecture"
    return ""


def _is_heading(content: str) -> bool:
    words = content.casefold().split()
    return content.isascii() and len(words) < _HEADING_WORDS and STOP_WORDS.isdisjoint(words)


def states_nothing(sentence: str) -> str:
    """Return why a sentence alone supports nothing; empty if it may support something."""
    if len(content_words(sentence)) < _LEAST_WORDS:
        return "it says too little"
    if _asks(sentence):
        return "it rests on a question"
    return "it rests on a conjecture" if _CONJECTURES.search(sentence) else ""


def _asks(sentence: str) -> bool:
    return sentence.rstrip(" \"'”’)）*_~。.").endswith(_QUESTION_ENDS)


def _exact(content: str, spans: Sequence[str], context: str) -> str:
    text = _folded("\n".join(spans))
    around = f"{text}\n{_folded(context)}"
    numbers = set(_NUMBERS.findall(text))
    loose = {piece for number in numbers for piece in re.split(r"[.:,_/-]", number)}
    for number in _NUMBERS.findall(_folded(content)):
        if number not in numbers and number not in loose:
            return "a number in it was not said there"
    for shape in shapes_in(content):
        if _folded(shape) not in around:
            return "an identifier in it was not said there"
    words = {*tokenize(around), *tokenize("\n".join((*spans, context)))}
    for name in names_in(content):
        if max(name, key=len) not in words:
            return "a name in it was not said there"
    return ""


def _worded(content: str, spans: Sequence[str], context: str) -> bool:
    wanted = content_words(content)
    held = content_words("\n".join(spans))
    lent = content_words(context)
    shared = len(wanted & held) + len((wanted - held) & lent)
    # the sentence's own words must support it; otherwise any sentence would support its neighbor
    return shared >= WORDS_SHARE * len(wanted) and len(wanted & held) * 2 >= shared


def content_words(text: str) -> frozenset[str]:
    """Return the words that carry a text's meaning: stems, or pairs of characters in scripts
    without spaces."""
    words = tokenize(text)
    return frozenset(
        word
        for word in substance(text, tuple(words))
        if len(word) > 1 or word.isascii() or not _is_unspaced(word)
    )


def _is_unspaced(sign: str) -> bool:
    return is_unspaced_pair(sign * 2)


def _agrees_in_denial(content: str, text: str) -> bool:
    if _DENIES.search(content) and not (_DENIES.search(text) or _PLAINLY_DENIES.search(text)):
        return False
    stated, rested_on = _clauses(content), _clauses(text)
    return not (_contradicts(stated, rested_on) or _contradicts(rested_on, stated))


def _contradicts(denying: Sequence[_Clause], affirming: Sequence[_Clause]) -> bool:
    denied = frozenset[str]().union(*(clause.words for clause in affirming if clause.denies))
    affirmed = frozenset[str]().union(*(other.words for other in affirming if not other.denies))
    for clause in denying:
        if not clause.denies:
            continue
        spoken_of = clause.words & (denied | affirmed)
        if len(spoken_of) < _SPOKEN_OF_SHARE * len(clause.words):
            continue
        if len(spoken_of & (affirmed - denied)) > _DENIED_SHARE * len(spoken_of):
            return True
    return False


def _clauses(text: str) -> list[_Clause]:
    pieces = [piece for piece in _CLAUSE_ENDS.split(text) if piece and piece.strip()]
    return [
        _Clause(
            words=content_words(_DENIES.sub(" ", piece)), denies=_DENIES.search(piece) is not None
        )
        for piece in pieces
    ]


def _folded(text: str) -> str:
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
    """Return whether a text tells its reader, or anyone, what to do."""
    return (
        _SAYS.search(text) is not None
        or _BEGINS_AS_ORDER.search(text) is not None
        or _CHINESE_ORDER.search(text) is not None
    )


RUN_SHARE: Final = 0.5
"""A statement repeats a text if the text contains this share of its runs (measured,
test_lineage.py)."""
LONG_RUN: Final = 4
"""Or if it contains this many runs in a row."""
ORDER_SHARE: Final = 0.6
RUN_SIGNS: Final = 4
"""A run has three words or, in scripts without spaces, this many characters."""
_LEAST_RUNS: Final = 2
_STEM_SIGNS: Final = 4
_WORDS: Final = re.compile(r"[^\W_]+")
_CODED: Final = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{4,40}\b", re.ASCII)
_UNSPACED: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]"
)

Run: TypeAlias = tuple[str, str, str] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedForm:
    """A statement, prepared for comparison with texts."""

    runs: tuple[Run, ...] = field(repr=False)
    names: frozenset[str] = field(repr=False)
    orders: bool
    words: frozenset[str] = field(repr=False)


def as_statement(text: str) -> RepeatedForm:
    orders = is_order(text)
    names = (
        *map(str.casefold, shapes_in(text)),
        *(word.casefold() for word in _CODED.findall(text)),
        *(max(name, key=len) for name in names_in(text)),
    )
    return RepeatedForm(
        runs=tuple(_runs(*_told_apart(text.casefold()))),
        names=frozenset(names),
        orders=orders,
        words=content_words(text) if orders else frozenset(),
    )


class RepeatIndex:
    """One text, with the runs and words of statements that it contains."""

    def __init__(self, text: str, statements: Iterable[RepeatedForm]) -> None:
        self._text = text
        self._folded = text.casefold()
        statements = tuple(statements)
        self._vocabulary = frozenset(chain.from_iterable(form.words for form in statements))
        spaced, unspaced = _told_apart(self._folded)
        self._beginnings = (
            None if unspaced else frozenset(word[:_STEM_SIGNS] for word in frozenset(spaced))
        )
        wanted = frozenset(chain.from_iterable(form.runs for form in statements))
        self._present = wanted.intersection(_runs(spaced, unspaced))

    def repeated_by(self, form: RepeatedForm, *, unheard: Iterable[str], outside: bool) -> bool:
        """Return whether a statement repeats the text. `unheard` are its names that no user
        mentioned before."""
        if is_echo(self.held(form)):
            return True
        if (form.orders or outside) and any(map(self._has_name, unheard)):
            return True
        return form.orders and self._has_sentence(form.words)

    def held(self, form: RepeatedForm) -> list[bool]:
        """Return, for each run of a statement, whether the text contains it."""
        return [run in self._present for run in form.runs]

    def _has_name(self, name: str) -> bool:
        first = _WORDS.search(name)
        if first is not None and len(first[0]) >= _STEM_SIGNS and not self._may_begin(first[0]):
            return False
        return name in self._folded

    def _has_sentence(self, wanted: frozenset[str]) -> bool:
        least = ORDER_SHARE * len(wanted)
        if len(wanted) < _LEAST_RUNS or sum(map(self._may_begin, wanted)) < least:
            return False
        return any(len(wanted & words) >= least for words in self._sentences)

    def _may_begin(self, word: str) -> bool:
        begun = word[:_STEM_SIGNS]
        if self._beginnings is None or not word.isascii():
            return begun in self._folded
        return begun in self._beginnings

    @cached_property
    def _sentences(self) -> frozenset[frozenset[str]]:
        return frozenset(
            self._vocabulary & content_words(sentence) for sentence in sentences(self._text)
        )


def is_echo(held: Sequence[bool]) -> bool:
    """Return whether a text contains so many of a statement's runs that one repeats the other."""
    return share(held) >= RUN_SHARE or _longest(held) >= LONG_RUN


def share(held: Sequence[bool]) -> float:
    """Return the share of a statement's runs that a text contains; 0 if it has too few to
    decide."""
    return sum(held) / len(held) if len(held) >= _LEAST_RUNS else 0.0


def _longest(held: Sequence[bool]) -> int:
    longest = current = 0
    for one in held:
        current = current + 1 if one else 0
        longest = max(longest, current)
    return longest


def _told_apart(folded: str) -> tuple[list[str], list[str]]:
    words = _WORDS.findall(folded)
    if folded.isascii():
        return words, []
    unspaced = [word for word in words if _UNSPACED.search(word)]
    if not unspaced:
        return words, []
    return [word for word in words if not _UNSPACED.search(word)], unspaced


def _runs(spaced: Sequence[str], unspaced: Sequence[str]) -> Iterator[Run]:
    for word in unspaced:
        yield from (word[at : at + RUN_SIGNS] for at in range(len(word) - RUN_SIGNS + 1))
    yield from zip(spaced, spaced[1:], spaced[2:], strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A statement, its speaker, and the segments that its speaker can have read."""

    statement: str = field(repr=False)
    trust: Trust
    before: int
    own: frozenset[SegmentId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The trust of a statement, and the segments whose words it repeats."""

    trust: Trust
    segments: tuple[SegmentId, ...] = ()


def lineages(
    utterances: Iterable[Utterance], segments: Sequence[Segment]
) -> Mapping[Utterance, Lineage]:
    """Return the trust of each statement, depending on which of these segments could be read before
    it."""
    repeated: dict[Utterance, list[Segment]] = {utterance: [] for utterance in utterances}
    doubted = [utterance for utterance in repeated if utterance.trust != "high"]
    read = {utterance.statement: as_statement(utterance.statement) for utterance in doubted}
    named = _first_named(read.values(), segments) if doubted else {}
    for place, segment in enumerate(segments):
        meant = [utterance for utterance in doubted if _may_repeat(utterance, place, segment)]
        if not meant:
            continue
        look = RepeatIndex(segment.text, (read[utterance.statement] for utterance in meant))
        outside = segment.trust == "outside"
        for utterance in meant:
            stated = read[utterance.statement]
            unheard = {
                name
                for name in stated.names
                if named.get(name, utterance.before) >= utterance.before
            }
            if look.repeated_by(stated, unheard=unheard, outside=outside):
                repeated[utterance].append(segment)
    return {
        utterance: Lineage(
            trust=lowest([utterance.trust, *(segment.trust for segment in segments)]),
            segments=tuple(dict.fromkeys(segment.id for segment in segments)),
        )
        for utterance, segments in repeated.items()
    }


def _may_repeat(utterance: Utterance, place: int, segment: Segment) -> bool:
    return (
        place < utterance.before
        and is_below(segment.trust, utterance.trust)
        and segment.id not in utterance.own
    )


def _first_named(statements: Iterable[RepeatedForm], segments: Sequence[Segment]) -> dict[str, int]:
    names = set[str]().union(*(form.names for form in statements))
    first: dict[str, int] = {}
    for place, segment in enumerate(segments):
        if segment.trust != "high" or not names:
            continue
        text = segment.text.casefold()
        for name in [name for name in names if name in text]:
            first[name] = place
            names.discard(name)
    return first


_HOW_THINGS_ARE: Final[frozenset[FactType]] = frozenset({"implementation", "config", "issue"})
_MAY_SAY: Final[Mapping[Trust, frozenset[FactType]]] = {
    "high": frozenset(EXTRACTED_TYPES),
    "medium": frozenset(EXTRACTED_TYPES) - {"preference"},
    "low": _HOW_THINGS_ARE,
    "outside": _HOW_THINGS_ARE,
}


_LAID_DOWN: Final[frozenset[FactType]] = frozenset({"preference", "decision"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """A draft and the words it rests on."""

    draft: FactDraft = field(repr=False)
    spans: tuple[str, ...] = field(repr=False)


def admit(
    proposed: Sequence[Proposed], around: Sequence[Segment], *, unseen_low: bool = False
) -> list[FactDraft | str]:
    """Return each draft with its trust, or the reason for refusing it. `around` are the segments
    among which it was found. `unseen_low` means that tools may have written even earlier
    messages."""
    places = {segment.id: place for place, segment in enumerate(around)}
    utterances = [_utterances(proposal, places, len(around)) for proposal in proposed]
    traced = lineages((each for other in utterances for each in other), around)
    return [
        _held_to_trust(proposal, [traced[each] for each in each_said], unseen_low=unseen_low)
        for proposal, each_said in zip(proposed, utterances, strict=True)
    ]


def _utterances(
    proposal: Proposed, places: Mapping[SegmentId, int], end: int
) -> tuple[Utterance, ...]:
    own = frozenset(evidence.segment for evidence in proposal.draft.evidence)
    before = max((places[id_] for id_ in own if id_ in places), default=end)
    return tuple(
        Utterance(statement=text, trust=proposal.draft.trust, before=before, own=own)
        for text in dict.fromkeys((proposal.draft.content, *proposal.spans))
    )


def _held_to_trust(
    proposal: Proposed, traced: Sequence[Lineage], *, unseen_low: bool
) -> FactDraft | str:
    draft = proposal.draft
    trust = lowest(lineage.trust for lineage in traced)
    if draft.type not in _MAY_SAY[trust]:
        return f"{trust} trust states no {draft.type}"
    lays_down = any(map(is_order, (draft.content, *proposal.spans)))
    if lays_down and trust in ("low", "outside"):
        return "a tool's words tell nobody what to do"
    if unseen_low and trust != "high" and (lays_down or draft.type in _LAID_DOWN):
        return "it may repeat what a tool brought in further back"
    repeated = tuple(dict.fromkeys(name for lineage in traced for name in lineage.segments))
    return replace(draft, trust=trust, lineage=repeated)
