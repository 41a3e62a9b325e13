"""Question sets of long chats, fed to the product turn by turn: LoCoMo, BEAM, LongMemEval.

Owns how a chat that others wrote becomes a conversation with a model, and what of its evidence
counts as there: something of every gold message (a passage, as memory cuts it), or strictly the
passage that holds the answer, both as `bench recall` judges them. Must never change a word that
was said. Always holds: the same set and bounds give the same sessions; times never go back; a
question is asked behind all that it needs, at the end of the chat unless spread.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar

from recollect.core.search.tokenize import split_passages, tokenize
from recollect_bench.live.sessions import Exchange, LiveQuestion, LiveSession, Need, assistant, user
from recollect_bench.recall.ask import strangers_of
from recollect_bench.recall.judge import AnswerPassages
from recollect_bench.recall.memory import StoredPassage
from recollect_bench.recall.sets import Memory, Question, QuestionSet, Said, load_set

T = TypeVar("T")

CHAT_SETS: Final = ("locomo", "beam", "longmemeval")
CHAT_WINDOWS: Final = {"locomo": 8_000, "beam": 64_000, "longmemeval": 16_000}
"""A window that most of the chat has left when it is asked about: LoCoMo's chats have 13,000 to
26,000 tokens, BEAM's 120,000 to 130,000, the pool of LongMemEval 82,000."""
_SPREAD_OVER: Final = 0.25
"""Of the exchanges, the last ones, over which questions are spread where that is asked for."""
_TURN_SECONDS: Final = 30.0
"""Between two exchanges of one sitting, whose messages are all dated alike."""
_NOTED: Final = "Noted."
_GO_ON: Final = "Please go on."
_SYSTEMS: Final = {
    "locomo": "You listen to the chat of two people, and answer questions about it.",
    "beam": "You are a helpful assistant.",
    "longmemeval": "You are a helpful assistant.",
}


def chat_sessions(
    name: str,
    *,
    most_questions: int | None = None,
    most_chats: int | None = None,
    spread: bool = False,
) -> list[LiveSession]:
    """A set as conversations; bounds take questions from everywhere, and the first chats.

    Questions are asked at the end, where how full the window is at one moment decides for all
    those of a chat; `spread` asks them over its last quarter, where less has left the view.
    """
    whole = load_set(name)
    chosen = whole.memories[:most_chats]
    total = sum(len(memory.questions) for memory in chosen)
    most = total if most_questions is None else min(most_questions, total)
    sessions: list[LiveSession] = []
    for place, memory in enumerate(chosen):
        share = len(memory.questions)
        if most < total:
            share = most * (place + 1) // len(chosen) - most * place // len(chosen)
        sessions.append(_session(whole, memory, share, spread=spread))
    return sessions


def _session(whole: QuestionSet, memory: Memory, most: int, *, spread: bool) -> LiveSession:
    order = list(range(len(memory.messages)))
    if whole.name == "longmemeval":  # a pool of many chats, in the order in which all was said
        order.sort(key=lambda place: memory.messages[place].said_at)
    exchanges, told_in = _exchanges(memory, order)
    passages = [_passages(message) for message in memory.messages]
    judged = AnswerPassages(passages)
    own = _spread(list(enumerate(memory.questions)), most)
    others = list(enumerate(strangers_of(whole, memory)))[:most]
    end = len(exchanges)
    asked = [
        (
            # not right behind its evidence: what was just said stands in every view
            moment if all(told_in[place] < moment for place in question.gold) else end,
            _question(f"{memory.name}-q{at}", question, passages, judged),
        )
        for moment, (at, question) in zip(_moments(end, len(own), spread=spread), own, strict=True)
    ]
    asked += [
        (moment, LiveQuestion(name=f"{memory.name}-n{at}", kind="nothing", ask=question.text))
        for moment, (at, question) in zip(
            _moments(end, len(others), spread=spread), others, strict=True
        )
    ]
    return LiveSession(
        name=f"{whole.name}-{memory.name}",
        exchanges=tuple(exchanges),
        questions=tuple(sorted(asked, key=lambda pair: pair[0])),
        system=_SYSTEMS[whole.name],
    )


def _moments(exchanges: int, questions: int, *, spread: bool) -> list[int]:
    """After how many exchanges each of so many questions is asked, in no order of theirs."""
    if not spread:
        return [exchanges] * questions
    first = exchanges - int(exchanges * _SPREAD_OVER)
    moments = [first + (exchanges - first) * (at + 1) // questions for at in range(questions)]
    random.Random(exchanges).shuffle(moments)  # sets list their questions by the place of evidence
    return moments


def _exchanges(memory: Memory, order: Sequence[int]) -> tuple[list[Exchange], dict[int, int]]:
    """What one says and the other replies; where nobody replies, the model notes it.

    And of each message in which exchange it is said.
    """
    exchanges: list[Exchange] = []
    told_in: dict[int, int] = {}
    at = 0.0
    waiting = list(order)
    while waiting:
        place = waiting.pop(0)
        message = memory.messages[place]
        told_in[place] = len(exchanges)
        at = max(message.said_at, at + _TURN_SECONDS)
        asked, reply = user(message.text), assistant(_NOTED)
        if message.role == "assistant":
            asked, reply = user(_GO_ON), assistant(message.text)
        elif waiting and _replies(memory.messages[waiting[0]], message):
            told_in[waiting[0]] = len(exchanges)
            reply = assistant(memory.messages[waiting.pop(0)].text)
        exchanges.append(Exchange(messages=(asked, reply), at=at, ordinary=True))
    return exchanges, told_in


def _replies(reply: Said, message: Said) -> bool:
    return reply.role == "assistant" and reply.said_at == message.said_at


def _passages(message: Said) -> list[StoredPassage]:
    """As memory cuts a message."""
    cut = split_passages(message.text)
    return [
        StoredPassage(text=passage.text, words=tuple(tokenize(passage.text))) for passage in cut
    ]


def _question(
    name: str,
    question: Question,
    passages: Sequence[Sequence[StoredPassage]],
    judged: AnswerPassages,
) -> LiveQuestion:
    needs = [
        Need(texts=strictly, any_of=tuple(passage.text for passage in passages[place]))
        for place, strictly in zip(question.gold, judged.needed(question), strict=True)
    ]
    return LiveQuestion(
        name=name, kind=question.category, ask=question.text, needs=tuple(needs), at=question.now
    )


def _spread(all_of_them: Sequence[T], most: int) -> list[T]:
    """So many of them, from everywhere, so that every category has a chance."""
    count = len(all_of_them)
    if count <= most:
        return list(all_of_them)
    # not every n-th: sets list their questions by category, as many of each
    return [all_of_them[at] for at in sorted(random.Random(count).sample(range(count), most))]
