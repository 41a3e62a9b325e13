"""Decides whether a draft may become a fact at all, from whose words it repeats.

Owns what each level of trust may say. The user's words may be anything; the model's anything but a
preference, which is the user's to have; what tools brought in only says how things are. Must never
raise a draft's trust. What always holds: nothing that rests on a tool's words, however it was said
again, is a preference or a decision or tells anybody what to do; where tools' words stand further
back than anybody looked, the model's lay nothing down either. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final, TypeAlias

from recollect.core.facts.support import content_words, sentences
from recollect.core.rules.trust import is_below, lowest
from recollect.core.search.identifiers import shapes_in
from recollect.core.search.names import names_in
from recollect.core.values.fact import EXTRACTED_TYPES, FactDraft, FactType
from recollect.core.values.segment import Segment, SegmentId, Trust

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
    """Whether a text tells its reader, or lays down for anybody, what is to be done."""
    return (
        _SAYS.search(text) is not None
        or _BEGINS_AS_ORDER.search(text) is not None
        or _CHINESE_ORDER.search(text) is not None
    )


RUN_SHARE: Final = 0.5
"""Of a statement's runs, so many have to stand in the text. Measured on 67 sentences that models
said beside tools' output: none reached more than 0.44, and that one restates a title it had read;
an echo with a short introduction reaches more than 0.5 (test_lineage.py)."""
LONG_RUN: Final = 4
"""Or so many runs one behind the other, six words: however long the introduction of an echo is. Of
the 67 only that title had as many, the next one 2."""
ORDER_SHARE: Final = 0.6
"""Of an order's words, so many have to stand in one sentence: as `support` asks for."""
RUN_SIGNS: Final = 4
"""Three words are a run; where words are not spaced, so many characters, which are two words."""
_LEAST_RUNS: Final = 2
_STEM_SIGNS: Final = 4
_WORDS: Final = re.compile(r"[^\W_]+")
_CODED: Final = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{4,40}\b", re.ASCII)
"""A word with digits in it."""
_UNSPACED: Final = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7a3]"
)

Run: TypeAlias = tuple[str, str, str] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedForm:
    """A statement as it is looked for in texts."""

    runs: tuple[Run, ...] = field(repr=False)
    names: frozenset[str] = field(repr=False)
    """What can mean one thing only: identifiers, words with digits in them, names."""
    orders: bool
    words: frozenset[str] = field(repr=False)
    """The words that an order is about."""


def as_statement(text: str) -> RepeatedForm:
    """A text as a statement to be looked for."""
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
    """One text, with those of the statements' runs and words that stand in it."""

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
        """Whether a statement repeats the text, which was fetched from elsewhere or not; `unheard`
        are those of its names that people had not said before."""
        if is_echo(self.held(form)):
            return True
        if (form.orders or outside) and any(map(self._has_name, unheard)):
            return True
        return form.orders and self._has_sentence(form.words)

    def held(self, form: RepeatedForm) -> list[bool]:
        """Of each run of a statement, whether it stands in the text."""
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
        """Whether a word of the text begins as this does: a stem begins as its word."""
        begun = word[:_STEM_SIGNS]
        if self._beginnings is None or not word.isascii():
            return begun in self._folded
        return begun in self._beginnings

    @cached_property
    def _sentences(self) -> frozenset[frozenset[str]]:
        """Of each sentence, the words that a statement has too."""
        return frozenset(
            self._vocabulary & content_words(sentence) for sentence in sentences(self._text)
        )


def is_echo(held: Sequence[bool]) -> bool:
    """Whether so many of a statement's runs stand in a text that it says the same again."""
    return share(held) >= RUN_SHARE or _longest(held) >= LONG_RUN


def share(held: Sequence[bool]) -> float:
    """The share of a statement's runs that stand in a text; 0 where it has too few to tell."""
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
    """A statement, who said it, and what its speaker can have read."""

    statement: str = field(repr=False)
    trust: Trust
    before: int
    """How many of the segments were read before it."""
    own: frozenset[SegmentId] = frozenset()
    """The segments that it was said in: nobody repeats themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """How far a statement may be trusted, and the segments whose words it repeats."""

    trust: Trust
    segments: tuple[SegmentId, ...] = ()


def lineages(
    utterances: Iterable[Utterance], segments: Sequence[Segment]
) -> Mapping[Utterance, Lineage]:
    """The trust of each statement, by those of these segments that were read before it."""
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
    """Each draft with the trust it has, or why it is refused; `around` are the segments they were
    found among, in order. With `unseen_low`, tools' words stand further back than `around`."""
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
    """What is said in a draft's name; its speaker can have read nothing that was said later."""
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
