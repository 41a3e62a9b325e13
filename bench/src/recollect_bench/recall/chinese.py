"""Reads MADial (Chinese and English) and MemDaily (Chinese) as memories.

Owns what of each file is a message, a session, a question and its gold. Always holds: the
same file gives the same memories in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from recollect.config.settings import Query
from recollect_bench.data import read_data
from recollect_bench.recall.sets import Memory, Question, QuestionSet, Said

POOLED: Final = 25
"""How many trajectories of a MemDaily file make one memory: one alone is too short to miss."""
_LINE: Final = re.compile(r"<(?P<who>[^>]+)>:\s?\"?(?P<said>.*?)\"?\s*", re.DOTALL)
_MINUTE: Final = re.compile(r"(\d+)年(\d+)月(\d+)日\D*(\d+):(\d+)")
_UNDATED: Final = datetime(2024, 1, 1, tzinfo=UTC).timestamp()


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
    most = Query().user_messages
    for dialogue in dialogues:
        named = [str(one) for one in dialogue["relevant-id"]]
        gold = tuple(dict.fromkeys(places[one] for one in named if one in places))
        for turn in dialogue["test-turn"]:
            said = users_words(dialogue["dialogue"][:turn])[-most:]
            if gold and said:
                yield Question(
                    text="\n".join(said),
                    newest=said[-1],
                    gold=gold,
                    category=language,
                    split="hold",
                )


def users_words(lines: Sequence[str]) -> list[str]:
    """What the user said in a dialogue of MADial, without names and quotes."""
    found = [_LINE.fullmatch(line) for line in lines]
    said = [line["said"].strip() for line in found if line and line["who"] != "Assistant"]
    return [words for words in said if words]


def _day(written: str) -> float:
    found = re.match(r"(\d{4})-(\d{1,2})-(\d{1,2})", written)
    if found is None:
        return _UNDATED
    return datetime(*map(int, found.groups()), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


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
    found = _MINUTE.match(written)
    if found is None:
        return _UNDATED
    year, month, day, hour, minute = map(int, found.groups())
    return datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()
