"""What the live bench counts of a recalled block, and the messages that need none."""

from __future__ import annotations

import pytest

from recollect_bench.live.feed import Asked, EvidenceMessages, Tally
from recollect_bench.live.ordinary import KINDS, SESSIONS, ordinary_messages
from recollect_bench.live.run import figures_of
from recollect_bench.live.sessions import Exchange, LiveQuestion, LiveSession, Need, assistant, user

PORT = LiveQuestion(name="q", kind="direct", ask="which port?", needs=(Need(texts=("8443",)),))
JOKE = LiveQuestion(name="j", kind="small talk", ask="tell me a joke", ordinary=True)


def asked(question: LiveQuestion, recalled: int, evidence: int = 0) -> Asked:
    return Asked(
        question=question,
        found=tuple(True for _ in question.needs),
        strict=(),
        lost_by="",
        block_tokens=recalled,
        request_tokens=1000,
        recalled_tokens=recalled,
        evidence_tokens=evidence,
    )


def test_only_passages_of_messages_with_evidence_count_as_evidence() -> None:
    told = (user("Staging answers on 8443."), assistant("Fine, I will use it."))
    session = LiveSession(name="s", exchanges=(Exchange(messages=told, at=0.0),), questions=())
    block = "<detail>\nuser: Staging  answers on 8443.\nassistant: Fine, I will use it.\n</detail>"
    assert EvidenceMessages(session).tokens_in([block], PORT) == 6
    assert EvidenceMessages(session).tokens_in([block], JOKE) == 0


def test_blocks_are_summed_up_by_size_precision_and_who_needed_none() -> None:
    tally = Tally(asked=[asked(PORT, 400, 100), asked(PORT, 200, 100), asked(JOKE, 0)])
    figures = figures_of([tally])
    assert figures["precision"] == pytest.approx(0.375)
    assert figures["recalled_tokens_p50"] == 300
    assert figures["ordinary_blocks"] == figures["ordinary_blocks.small talk"] == 0.0
    assert "nothing_recalled" not in figures


def test_there_are_two_hundred_ordinary_messages_and_none_twice() -> None:
    texts = [text for _, text in ordinary_messages()]
    assert len(set(texts)) == len(texts) == 200
    assert len(texts) % len(SESSIONS) == 0
    assert set(KINDS) == {"general", "small talk", "new task"}
