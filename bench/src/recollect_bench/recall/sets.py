"""The question sets of the recall bench: LoCoMo, LongMemEval, BEAM, MADial and MemDaily.

Owns what of each file is a message, a session, a question and its gold. Sets are read from
`RECOLLECT_DATA` each time and never brought into the repository; one that is not there is named.
A question's gold are places in its own memory; a question whose gold is not among the messages is
left out, since nobody could find it. The same file gives the same memories in the same order, so
that the tuning split never moves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from recollect.core.turn.query import QUERY_MESSAGES
from recollect_bench.data import read_data

Split: TypeAlias = Literal["tune", "hold"]
"""Whether a recipe was tuned on the question; what is held back is what to believe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message of a memory."""

    text: str = field(repr=False)
    role: Literal["user", "assistant"]
    session: str
    said_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and the messages that answer it."""

    text: str = field(repr=False)
    """The last user messages, oldest first."""
    gold: tuple[int, ...]
    """Places in the memory's messages."""
    category: str
    split: Split
    answer: str = field(default="", repr=False)
    newest: str = field(default="", repr=False)
    """The newest user message alone, where `text` is more than that."""
    now: float | None = None
    """When it is asked; None where the set does not say: just after the last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One chat, or one pool of them, with the questions about it: a space of its own."""

    name: str
    messages: tuple[Said, ...] = field(repr=False)
    questions: tuple[Question, ...] = field(repr=False)

    @property
    def ends_at(self) -> float:
        """Just after the last message."""
        return max(message.said_at for message in self.messages) + 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """A set as it is measured."""

    name: str
    memories: tuple[Memory, ...] = field(repr=False)
    strangers: tuple[Question, ...] = field(default=(), repr=False)
    """Questions of another set, for one that is a single memory and has no other chat."""
    same_events: bool = False
    """Its memories tell of the same, as in two languages: none is a stranger to another."""
    notes: tuple[str, ...] = ()

    @property
    def questions(self) -> int:
        """How many there are."""
        return sum(len(memory.questions) for memory in self.memories)


QUICK_MEMORIES: Final = 2
QUICK_QUESTIONS: Final = 25


def _shortened(whole: QuestionSet) -> QuestionSet:
    memories = tuple(
        replace(memory, questions=_spread(memory.questions))
        for memory in whole.memories[:QUICK_MEMORIES]
    )
    return replace(whole, memories=memories, strangers=_spread(whole.strangers))


def _spread(questions: Sequence[Question]) -> tuple[Question, ...]:
    """Some of them, from everywhere, so that every category has a chance."""
    step = max(1, len(questions) // QUICK_QUESTIONS)
    return tuple(questions[::step][:QUICK_QUESTIONS])


# Reads the three English sets as memories


TUNED_CHATS: Final = 5
"""The recipe was tuned on the first five conversations of LoCoMo."""
_CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""Of LoCoMo; 5 is adversarial: what it asks for was never said."""
_MONTHS: Final = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_SITTING: Final = re.compile(
    r"(?P<hour>\d+):(?P<minute>\d+) (?P<half>am|pm) on (?P<day>\d+) (?P<month>\w+),? (?P<year>\d+)"
)
_SLASHED: Final = re.compile(r"(\d+)/(\d+)/(\d+) \(\w+\) (\d+):(\d+)")
_ANCHOR: Final = re.compile(r"(?P<month>[A-Za-z]+)-(?P<day>\d+)-(?P<year>\d+)")
_TURN: Final = re.compile(r"D:?(\d+):0*(\d+)")
_UNDATED: Final = datetime(2024, 1, 1, tzinfo=UTC).timestamp()


def locomo() -> QuestionSet:
    """Ten long chats between two people; a sitting is a session."""
    memories = tuple(
        _locomo_memory(chat, place)
        for place, chat in enumerate(read_data("memory_qa/locomo10.json.gz"))
    )
    notes = ("locomo: questions with evidence, without the adversarial ones",)
    return QuestionSet(name="locomo", memories=memories, notes=notes)


def _locomo_memory(chat: Mapping[str, Any], place: int) -> Memory:
    talk = chat["conversation"]
    numbers = [int(name[8:]) for name in talk if re.fullmatch(r"session_\d+", name)]
    messages: list[Said] = []
    places: dict[str, int] = {}
    for number in sorted(numbers):
        said_at = _sitting_time(talk[f"session_{number}_date_time"])
        for turn in talk[f"session_{number}"]:
            caption = turn.get("blip_caption")
            photo = f" [shares a photo: {caption}]" if caption else ""
            places[turn["dia_id"]] = len(messages)
            messages.append(
                Said(
                    text=f"{turn['speaker']}: {turn['text']}{photo}",
                    role="user",
                    session=f"sitting-{number:02}",
                    said_at=said_at,
                )
            )
    split = "tune" if place < TUNED_CHATS else "hold"
    questions = [
        Question(
            text=asked["question"],
            gold=gold,
            category=_CATEGORIES[asked["category"]],
            split=split,  # type: ignore[arg-type]
            answer=str(asked.get("answer", "")),
        )
        for asked in chat["qa"]
        if asked["category"] in _CATEGORIES
        and (gold := locomo_gold(asked.get("evidence", ()), places))
    ]
    return Memory(name=chat["sample_id"], messages=tuple(messages), questions=tuple(questions))


def locomo_gold(evidence: Iterable[str], places: Mapping[str, int]) -> tuple[int, ...]:
    """The places that evidence names; some name several turns at once, or spell them oddly."""
    named = [turn for one in evidence for turn in re.split(r"[;,\s]+", one.strip())]
    ids = [f"D{int(m[1])}:{int(m[2])}" for turn in named if (m := _TURN.fullmatch(turn))]
    return tuple(dict.fromkeys(places[other] for other in ids if other in places))


def _sitting_time(written: str) -> float:
    match = _SITTING.match(written)
    assert match is not None, "every sitting of LoCoMo is dated"
    hour = int(match["hour"]) % 12 + (12 if match["half"] == "pm" else 0)
    month = _MONTHS.index(match["month"].lower()) + 1
    day, year, minute = int(match["day"]), int(match["year"]), int(match["minute"])
    return datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()


def longmemeval() -> QuestionSet:
    """The evidence turns of all questions, pooled into one memory.

    Every turn is a session of its own: what stands beside a turn in this pool is evidence of
    the same question, so neighbours would give the answer away.
    """
    rows = read_data("memory_qa/longmemeval_oracle_evidence_turns.json.gz")
    messages: list[Said] = []
    places: dict[tuple[str, str, str], int] = {}
    for row in rows:
        for date, turn in _evidence_turns(row):
            key = (date, turn["role"], turn["content"])
            if key not in places:
                places[key] = len(messages)
                messages.append(
                    Said(
                        text=turn["content"],
                        role=turn["role"],
                        session=f"turn-{len(messages):04}",
                        said_at=_slashed_time(date),
                    )
                )
    kept = [
        row for row in rows if row["evidence_sessions"] and not row["question_id"].endswith("_abs")
    ]
    questions = [
        Question(
            text=row["question"],
            gold=tuple(
                sorted(
                    {
                        places[date, turn["role"], turn["content"]]
                        for date, turn in _evidence_turns(row)
                    }
                )
            ),
            category=str(row.get("question_type") or "untyped"),
            split="tune" if place % 2 == 0 else "hold",
            answer=str(row.get("answer", "")),
            now=_slashed_time(row["question_date"]),
        )
        for place, row in enumerate(kept)
    ]
    memory = Memory(name="pool", messages=tuple(messages), questions=tuple(questions))
    strangers = tuple(asked for chat in beam().memories for asked in chat.questions)
    notes = (
        "longmemeval: evidence turns of all questions in one memory, each a session of its own",
        "  (neighbours there are evidence of the same question); other chats' questions are BEAM's",
        "longmemeval: the file holds no answers, so strict_4k asks for every passage of every gold",
        "  message; baselines show whole messages, and openclaw is ahead there",
    )
    return QuestionSet(name="longmemeval", memories=(memory,), strangers=strangers, notes=notes)


def _evidence_turns(row: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for session in row["evidence_sessions"]:
        for turn in session["turns"]:
            yield session["date"], turn


def _slashed_time(written: str) -> float:
    match = _SLASHED.match(written)
    assert match is not None, "every session of LongMemEval is dated"
    year, month, day, hour, minute = map(int, match.groups())
    return datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()


def beam() -> QuestionSet:
    """Twenty chats with an assistant of 100,000 tokens and more; a batch is a session."""
    memories = tuple(_beam_memory(chat) for chat in read_data("no_licence_file/beam_100K.json.gz"))
    notes = (
        "beam: BEAM-100K, questions with evidence; no weight was fitted to it, but it is not blind",
        "  to us: the lift of standing instructions (+0.4 of score) was added after a look at what",
        "  it asks for, and what the lift of the user's own words does to it was seen",
    )
    return QuestionSet(name="beam", memories=memories, notes=notes)


def _beam_memory(chat: Mapping[str, Any]) -> Memory:
    dates = [_anchor_time(row.get("time_anchor") or "") for row in chat["messages"]]
    now = next((date for date in dates if date is not None), _UNDATED)
    messages: list[Said] = []
    places: dict[int, int] = {}
    for row, date in zip(chat["messages"], dates, strict=True):
        now = now if date is None else date
        places[row["id"]] = len(messages)
        messages.append(
            Said(
                text=row["content"],
                role=row["role"],
                session=f"batch-{row['batch']:02}",
                said_at=now,
            )
        )
    questions = [
        Question(
            text=asked["question"],
            gold=tuple(sorted({places[one] for one in asked["evidence_ids"]})),
            category=asked["category"].replace("_", "-"),
            split="hold",
            answer=" ".join([str(asked.get("ideal", "")), *map(str, asked.get("rubric", ()))]),
        )
        for asked in chat["questions"]
        if asked["evidence_ids"] and asked["category"] != "abstention"
    ]
    name = f"chat-{chat['chat_id']}"
    return Memory(name=name, messages=tuple(messages), questions=tuple(questions))


def _anchor_time(written: str) -> float | None:
    match = _ANCHOR.match(written)
    if match is None or match["month"].lower() not in _MONTHS:
        return None
    month = _MONTHS.index(match["month"].lower()) + 1
    return datetime(int(match["year"]), month, int(match["day"]), tzinfo=UTC).timestamp()


# Reads MADial (Chinese and English) and MemDaily (Chinese) as memories


POOLED: Final = 25
"""How many trajectories of a MemDaily file make one memory: one alone is too short to miss."""
_LINE: Final = re.compile(r"<(?P<who>[^>]+)>:\s?\"?(?P<said>.*?)\"?\s*", re.DOTALL)
_MINUTE: Final = re.compile(r"(\d+)年(\d+)月(\d+)日\D*(\d+):(\d+)")


def madial() -> QuestionSet:
    """Memories of events; what recalls them is what the user said last in a dialogue."""
    languages = ("zh", "en")
    memories = tuple(
        _madial_memory(read_data(f"memory_qa/madial_{language}.json.gz"), language)
        for language in languages
    )
    notes = (
        "madial: the question is the user's last messages before the reply that remembers;",
        "  gold are all memories marked as relevant; the memory of one language is one space",
    )
    return QuestionSet(name="madial", memories=memories, same_events=True, notes=notes)


def _madial_memory(held: Mapping[str, Any], language: str) -> Memory:
    places: dict[str, int] = {}
    messages: list[Said] = []
    for name, event in held["memories"].items():
        places[str(name)] = len(messages)
        messages.append(
            Said(
                text=f"{event.get('time', '')} {event.get('event', '')}".strip(),
                role="user",
                session=f"event-{name}",  # events stand beside each other for no reason
                said_at=_day(event.get("time", "")),
            )
        )
    questions = tuple(_madial_questions(held["dialogues"], places, language))
    return Memory(name=f"madial-{language}", messages=tuple(messages), questions=questions)


def _madial_questions(
    dialogues: Sequence[Mapping[str, Any]], places: Mapping[str, int], language: str
) -> Iterator[Question]:
    for dialogue in dialogues:
        named = [str(one) for one in dialogue["relevant-id"]]
        gold = tuple(dict.fromkeys(places[one] for one in named if one in places))
        for turn in dialogue["test-turn"]:
            texts = users_words(dialogue["dialogue"][:turn])[-QUERY_MESSAGES:]
            if gold and texts:
                yield Question(
                    text="\n".join(texts),
                    newest=texts[-1],
                    gold=gold,
                    category=language,
                    split="hold",
                )


def users_words(lines: Sequence[str]) -> list[str]:
    """What the user said in a dialogue of MADial, without names and quotes."""
    matches = [_LINE.fullmatch(line) for line in lines]
    said = [line["said"].strip() for line in matches if line and line["who"] != "Assistant"]
    return [words for words in said if words]


def _day(written: str) -> float:
    match = re.match(r"(\d{4})-(\d{1,2})-(\d{1,2})", written)
    if match is None:
        return _UNDATED
    return datetime(*map(int, match.groups()), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


def memdaily() -> QuestionSet:
    """Daily notes: trajectories of a file pooled into one memory, each a session."""
    held = read_data("no_licence_file/memdaily_zh.json.gz")
    memories = tuple(
        _memdaily_memory(name, trajectories[:POOLED]) for name, trajectories in held.items()
    )
    notes = (f"memdaily: the first {POOLED} trajectories of each file pooled into one memory",)
    return QuestionSet(name="memdaily", memories=memories, notes=notes)


def _memdaily_memory(name: str, trajectories: Sequence[Mapping[str, Any]]) -> Memory:
    messages: list[Said] = []
    questions: list[Question] = []
    for number, trajectory in enumerate(trajectories):
        first = len(messages)
        messages += [
            Said(
                text=row["message"],
                role="user",
                session=f"trajectory-{number:02}",
                said_at=_minute(row["time"]),
            )
            for row in trajectory["message_list"]
        ]
        for asked in trajectory["question_list"]:
            steps = asked["target_step_id"]
            steps = steps if isinstance(steps, list) else [steps]
            questions.append(
                Question(
                    text=asked["question"],
                    gold=tuple(sorted({first + step for step in steps})),
                    category=name.split("_", 1)[1].rsplit("_", 1)[0].replace("_", "-"),
                    split="hold",
                    answer=str(asked.get("answer", "")),
                    now=_minute(asked["time"]),
                )
            )
    return Memory(name=name, messages=tuple(messages), questions=tuple(questions))


def _minute(written: str) -> float:
    match = _MINUTE.match(written)
    if match is None:
        return _UNDATED
    year, month, day, hour, minute = map(int, match.groups())
    return datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()


SETS: Final[Mapping[str, Callable[[], QuestionSet]]] = {
    "locomo": locomo,
    "longmemeval": longmemeval,
    "beam": beam,
    "madial": madial,
    "memdaily": memdaily,
}


def load_set(name: str, *, quick: bool = False) -> QuestionSet:
    """Read a set; `quick` takes a few questions about the first memories, to see that it runs."""
    loaded = SETS[name]()
    return _shortened(loaded) if quick else loaded
