"""Builds the standing block, which repeats the user's decisions and rules after their messages were
left out of the request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from recollect.core.formats.recalled_block import EARLIER_ORDER, standing_line, write_standing
from recollect.core.formats.summaries import is_summary
from recollect.core.rules.noise import without_attachments, without_reminders
from recollect.core.rules.text import (
    excerpt_around,
    one_line,
    sentence_spans,
    without_recalled_blocks,
)
from recollect.core.rules.tokens import Weigher
from recollect.core.search.identifiers import shapes_in
from recollect.core.search.names import names_in, speaker_of
from recollect.core.search.question import substance, what_asks
from recollect.core.search.statements import is_error_line, is_order, statement_kind
from recollect.core.search.tokenize import tokenize
from recollect.core.turn.align import StatementCache
from recollect.core.values.edit import Insert
from recollect.core.values.history import Entry
from recollect.core.values.message import EntryKey, MessageId, Text, ToolResult
from recollect.core.values.reason import Cause, Reason
from recollect.core.values.recall import RecalledFact

_LINE_CHARS: Final = 240  # not measured; an order is one sentence
_READ_CHARS: Final = 12_000  # not measured; bounds the work per message
_SPACES_CHARS: Final = 8  # white space between sentences
_LEAST_WORTH: Final = 0.8  # not measured; this and the next order the lines
_KIND_WORTH: Final = {"constraint": 4.0, "decision": 3.5, "task": 3.0, "attempt": 2.0}
_RULE_WORTH: Final = 2.5  # not measured; above any other statement
_ASSISTANT_SHARE: Final = 0.4  # not measured; below the user's statements
_LONG_SHARE: Final = 0.5  # not measured
_ORDER_SHARE: Final = 0.4  # not measured; an order of one task is done by now
_LEAST_WORDS: Final = 4  # not measured; shorter sentences state nothing
_ASSISTANT_TOKENS: Final = 0.3  # not measured; leaves most to the user's statements
_ERROR_WORTH: Final = 0.8  # see _LEAST_WORTH
_MOST_ERRORS: Final = 2  # not measured; errors repeat
_LEAST_LINE_TOKENS: Final = 3  # no line is shorter
_TOOL: Final = "tool output"
_VARIES: Final = re.compile(r"[\"'`].*?[\"'`]|\S*[\d/_.\\-]\S*")
_VALUE: Final = re.compile(r"(?<![\w.])[€$£]?\d[\w.,:%/€$-]*|\b[A-Z]{2,}\d*\b")
_STATES: Final = re.compile(
    r"\b(?:is|are|was|were|isn['’]?t|has|have|goes|belongs?|owns?|took|moved|changed|stays?|lives?"
    r"|means|wants?|likes?|hates?|prefers?|allergic|called|named|signed|agreed|valid|until|from"
    r"|because|since|instead|no\ longer|anymore|only|not)\b|['’](?:s|re|m)\b",
    re.IGNORECASE | re.VERBOSE,
)
# Words of rules and preferences without "must" or "decided".
_RULES: Final = re.compile(
    r"""\b(?:nobody|no\ one|none\ of\ you|only\b.{1,60}\b(?:may|can|is\ allowed|are\ allowed)
      |may\ only|(?:no|not)\b.{1,80}\bever\b|ever\W*$|no\ (?:way|exceptions?)|hands\ off|stay\ away
      |use\b.{1,60}\b(?:not|instead|rather|never|no)\b|not\b.{1,40}\bbut\b|rather\ than
      |(?:i|we)\ (?:really\ |also\ |still\ )?
        (?:like|love|hate|want|stand|prefer|need|use|accept|allow
          |(?:do\ not|don['’]?t|can['’]?t|cannot|never|always|only)\ (?!know|think|see|understand
            |remember|find|believe|mind|care|get|have\ (?:time|to))[a-z]+)
      |(?:i|we)['’]?d\ rather|my\ taste|pet\ peeve|annoys\ me|not\ before|by\ default
      |reminder|remember|note\ (?:for|that|to)|heads[-\ ]up|fyi|as\ of|from\ (?:now|here|today)
      |no\ longer|park\ (?:it|that|this)|some\ ?day|one\ day|later|nothing|everything|each|every
      |as\ a\ rule|in\ general|whenever|if\ (?:in\ doubt|ever|you\ see|someone|anybody|anyone))\b
    |^\W*(?:please\W+)?(?:for\b.{1,60}\b(?:use|take|go|ask)|in\b.{1,40}\b(?:give|use|write|keep)
      |no|use|keep|put|avoid|prefer|stick|leave|answer|reply|call|treat|assume|spell|sign)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# Orders with any verb: "undo that rename", "book us a table".
_BARE_VERB: Final = re.compile(
    r"""^\W*(?:(?:please|ok|okay|now|then|next|also|and|so|just|first|again)\W+)*
    (?!(?:in|on|at|for|with|from|to|of|by|as|after|before|since|until|because|if|when|while|where
      |but|or|not|only|all|both|each|every|either|there|here|that|this|these|those|what|which|who
      |is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|may|might|must|we|i
      |you|he|she|they|it|no|yes|like|about|under|over|between|without|within|through|during
      |against|above|below|near|than|even|still|though|although|unless|once|see|use|keep
      |today|tomorrow|yesterday|tonight|(?:mon|tues|wednes|thurs|fri|satur|sun)day
      |such|quite|half|twice|got|made|found|took|gave|saw|met|bought|sold|lost|won|left|paid
      |(?!embed)[a-z]+(?<!e)ed|[a-z]+ly|[a-z]+(?<!s)s\ (?:all|both|an?))\b)
    [a-z]+\ (?:the|this|that|these|those|it|them|all|both|my|our|its|their|us|me|an?)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# Words of the model's advice, which users ask for later.
_ADVICE: Final = re.compile(
    r"\b(?:i(?:['’]d|\ would)\ \w+|i\ (?:suggest|recommend|propose|advise)"
    r"|my\ (?:suggestion|recommendation|advice|proposal)|better\ to|worth\ (?:a|trying|using)"
    r"|you\ (?:could|should|might)|consider)\b|建议|推荐",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandResult:
    """The block as an edit, or None if it is empty, and the reason."""

    edit: Insert | None
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    speaker: str
    text: str = field(repr=False)
    worth: float
    place: int
    sentence: int
    source: MessageId


def stand(
    left_entries: Sequence[Entry],
    facts: Sequence[RecalledFact],
    weigher: Weigher,
    *,
    anchor: EntryKey,
    budget_tokens: int,
    turn: int,
    among_tools: bool = True,
    summary: str = "",
    mask: Callable[[str], str] = str,
    statement_cache: StatementCache | None = None,
) -> StandResult:
    """Build the standing block of a request without these messages. Without tools, the block
    includes only rules and decisions. Text of `summary` is not repeated. `mask` masks secrets in
    stored texts. `known` caches statements. The edit names messages repeated in full."""
    statement_cache = {} if statement_cache is None else statement_cache
    summary_line = one_line(summary).casefold()
    for key in statement_cache.keys() - {entry.key for entry in left_entries}:
        del statement_cache[key]
    chosen_facts = list(facts)
    while chosen_facts and weigher.text(write_standing(chosen_facts, ())) > budget_tokens:
        chosen_facts.pop()
    statements = [
        statement
        for statement in _statements(
            () if _between_people(left_entries) else left_entries, mask, statement_cache
        )
        if (among_tools or _states_rule(statement.text))
        and statement.text.casefold() not in summary_line
    ]
    chosen_statements = [  # a cached text may contain text that is now known to be a secret
        replace(statement, text=mask(statement.text))
        for statement in _fitting(statements, chosen_facts, weigher, budget_tokens)
    ]
    text = _write_block(chosen_facts, chosen_statements)
    # Joined lines have slightly more tokens than their sum.
    while chosen_statements and weigher.text(text) > budget_tokens:
        chosen_statements.pop()
        text = _write_block(chosen_facts, chosen_statements)
    if not chosen_statements and not chosen_facts:
        return StandResult(edit=None, reason=Reason(Cause.NOTHING_STANDS))
    reason = Reason(Cause.STANDING_BLOCK, facts=len(chosen_facts), lines=len(chosen_statements))
    sources = [
        *(statement.source for statement in chosen_statements),
        *(i for f in chosen_facts for i in f.message_ids),
    ]
    edit = Insert(
        anchor=anchor,
        placement="head",
        text=text,
        stage="stand",
        reason=reason,
        turn=turn,
        quotes=tuple(dict.fromkeys(sources)),
        recalled=tuple(_whole_messages(left_entries, chosen_statements)),
    )
    return StandResult(edit=edit, reason=reason)


def _fitting(
    statements: Sequence[_Statement],
    facts: Sequence[RecalledFact],
    weigher: Weigher,
    budget_tokens: int,
) -> Iterator[_Statement]:
    fact_texts = {" ".join(fact.text.casefold().split()) for fact in facts}
    tokens = weigher.text(write_standing(facts, ())) + weigher.text("<detail>\n</detail>")
    errors, advice = 0, 0
    for statement in sorted(statements, key=lambda each: (-each.worth, -each.place)):
        if tokens + _LEAST_LINE_TOKENS > budget_tokens:
            break
        cost = weigher.text(standing_line(statement.speaker, statement.text)) + 1
        if statement.speaker == _TOOL and errors == _MOST_ERRORS:
            continue
        if statement.speaker == "assistant" and advice + cost > _ASSISTANT_TOKENS * budget_tokens:
            continue
        if tokens + cost > budget_tokens or any(
            statement.text.casefold() in fact for fact in fact_texts
        ):
            continue
        tokens += cost
        errors += statement.speaker == _TOOL
        advice += cost if statement.speaker == "assistant" else 0
        yield statement


def _write_block(facts: Sequence[RecalledFact], statements: Sequence[_Statement]) -> str:
    in_order = sorted(statements, key=lambda statement: (statement.place, statement.sentence))
    return write_standing(facts, [(statement.speaker, statement.text) for statement in in_order])


def _statements(
    left_entries: Sequence[Entry], mask: Callable[[str], str], statement_cache: StatementCache
) -> Iterator[_Statement]:
    seen: set[str] = set()
    for place, entry in enumerate(left_entries):
        if entry.key not in statement_cache:
            statement_cache[entry.key] = tuple(
                [
                    (speaker, sentence, worth, _shape(speaker, sentence, worth))
                    for speaker, sentence, worth in _in_message(entry, mask)
                ]
            )
        for number, (speaker, sentence, worth, shape) in enumerate(statement_cache[entry.key]):
            if shape not in seen:
                seen.add(shape)
                yield _Statement(
                    speaker=speaker,
                    text=sentence,
                    worth=worth,
                    place=place,
                    sentence=number,
                    source=entry.id,
                )


def _shape(speaker: str, sentence: str, worth: float) -> str:
    shape = sentence.casefold()
    return shape if speaker == "user" and worth > _LEAST_WORTH else _VARIES.sub("", shape)


def _between_people(left_entries: Sequence[Entry]) -> bool:
    texts = [
        part.text
        for entry in left_entries
        if entry.role == "user"
        for part in entry.parts[:1]
        if isinstance(part, Text)
    ]
    return 2 * sum(bool(speaker_of(text)) for text in texts) > len(texts)


def _whole_messages(
    left_entries: Sequence[Entry], statements: Sequence[_Statement]
) -> Iterator[EntryKey]:
    lengths: dict[int, int] = {}
    for statement in statements:
        lengths[statement.place] = lengths.get(statement.place, 0) + len(statement.text)
    for place, length in lengths.items():
        texts = [part.text for part in left_entries[place].parts if isinstance(part, Text)]
        if (
            len(texts) == len(left_entries[place].parts)
            and sum(map(len, texts)) <= length + _SPACES_CHARS
        ):
            yield left_entries[place].key


def _in_message(entry: Entry, mask: Callable[[str], str]) -> Iterator[tuple[str, str, float]]:
    if is_summary(entry.role, entry.parts):  # a client wrote this text, not the user
        return
    texts = [part.text for part in entry.parts if isinstance(part, Text)]
    own_texts = iter(texts if entry.role == "assistant" else without_attachments(texts))
    for part in entry.parts:
        part_text = next(own_texts) if isinstance(part, Text) else ""
        if isinstance(part, Text) and entry.role in ("user", "assistant"):
            if part.text.lstrip().startswith("/"):  # a command, which was executed already
                continue
            part_text = part_text if entry.role == "assistant" else without_reminders(part_text)
            text = mask(_first(without_recalled_blocks(part_text, any_spelling=True)))
            for sentence, worth in _sentences_worth(text, by_user=entry.role == "user"):
                once = entry.role == "user" and asks_once(sentence)
                yield EARLIER_ORDER if once else entry.role, sentence, worth
        elif isinstance(part, ToolResult):
            text = _first(part.text)
            if any(map(is_error_line, text.splitlines())):
                for line in filter(is_error_line, mask(text).splitlines()):
                    yield _TOOL, excerpt_around(one_line(line), 0, 0, _LINE_CHARS), _ERROR_WORTH


def _first(text: str) -> str:
    if len(text) <= _READ_CHARS:
        return text
    return text[:_READ_CHARS].rpartition("\n")[0]


def _sentences_worth(text: str, *, by_user: bool) -> Iterator[tuple[str, float]]:
    fenced = False
    for start, end in sentence_spans(text):
        if text.startswith("```", start):
            fenced = not fenced
            continue
        sentence = one_line(text[start:end])
        if fenced or not sentence:
            continue
        worth = _worth(sentence, by_user=by_user)
        if worth >= _LEAST_WORTH:
            yield excerpt_around(sentence, 0, 0, _LINE_CHARS), worth


def rule_strength(text: str, *, by_user: bool) -> float:
    """Return how clearly a text states a rule or decision (0 to 1), by its clearest sentence."""
    worths = [worth for _, worth in _sentences_worth(text, by_user=by_user)]
    return min(1.0, max(worths, default=0.0) / _KIND_WORTH["constraint"])


def states(text: str) -> bool:
    """Return whether a user's message contains more than requests for work, such as a rule."""
    return any(not asks_once(sentence) for sentence, _ in _sentences_worth(text, by_user=True))


def _states_rule(sentence: str) -> bool:
    return statement_kind(sentence, by_user=True) is not None or bool(_RULES.search(sentence))


def asks_once(sentence: str) -> bool:
    """Return whether a sentence asks for one piece of work and states no rule."""
    orders = is_order(sentence) or _BARE_VERB.match(sentence) is not None
    return orders and not _states_rule(sentence)


def _worth(sentence: str, *, by_user: bool) -> float:
    if what_asks(sentence) == "question":
        return 0.0
    kind = statement_kind(sentence, by_user=by_user)
    worth = 0.0 if kind is None else _KIND_WORTH.get(kind, 0.0)
    if not worth and _RULES.search(sentence):
        worth = _RULE_WORTH
    exact = len(set(shapes_in(sentence)) | set(_VALUE.findall(sentence)))
    worth += min(exact, 2) + 0.5 * min(len(names_in(sentence)), 2)
    if _STATES.search(sentence):
        worth += 1.0
    if len(sentence) > _LINE_CHARS:
        return worth * _LONG_SHARE
    if by_user:
        if is_order(sentence):
            return worth * _ORDER_SHARE
        says = len(substance(sentence, tuple(tokenize(sentence)))) >= _LEAST_WORDS
        return max(worth, _LEAST_WORTH if says else 0.0)
    if _ADVICE.search(sentence) or is_order(sentence):
        return worth
    return worth * _ASSISTANT_SHARE if exact else 0.0
