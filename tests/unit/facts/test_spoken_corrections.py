"""Corrections as people say them: half a sentence, about what was just spoken of."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.facts.saying import said
from tests.unit.facts.spoken_corrections import CORRECTING, NOT_UNDERSTOOD, UNRELATED

from recollect.facts.history import as_of, chain, history_of
from recollect.facts.reconcile import Reconciled, reconcile
from recollect.facts.statements import find_statements
from recollect.values.fact import Fact, FactDraft, FactId
from recollect.values.message import Role
from recollect.values.segment import SegmentId

BY_MODEL: Role = "assistant"


class Talk:
    """A memory that hears one message after the other."""

    def __init__(self) -> None:
        self.known: dict[FactId, Fact] = {}
        self.last: list[Reconciled] = []
        self._at = 0

    def hear(self, text: str, role: Role = "user", session: str = "work") -> list[FactDraft]:
        self._at += 1
        id_ = SegmentId(f"{self._at:032x}")
        segment = replace(said(text, role), id=id_, said_at=float(self._at), session=session)
        drafts = list(find_statements(segment).drafts)
        self.last = [self._take(draft) for draft in drafts]
        return drafts

    def _take(self, draft: FactDraft) -> Reconciled:
        every = tuple(self.known.values())
        done = asyncio.run(
            reconcile(draft, (), model=None, now=99.0, history=history_of(draft, every))
        )
        self.known.update((fact.id, fact) for fact in done.written)
        return done

    @property
    def current(self) -> list[str]:
        return [fact.content for fact in self.known.values() if fact.superseded_by is None]


@pytest.mark.parametrize(("first", "second"), CORRECTING)
def test_a_correction_follows_what_was_spoken_of(first: str, second: str) -> None:
    talk = Talk()
    talk.hear(first)
    talk.hear(second)
    old, *_ = talk.known.values()
    assert old.superseded_by is not None, talk.current


@pytest.mark.parametrize(("first", "second"), NOT_UNDERSTOOD)
def test_a_correction_that_is_not_understood_loses_nothing(first: str, second: str) -> None:
    talk = Talk()
    stated = [draft.content for draft in (*talk.hear(first), *talk.hear(second))]
    assert talk.current == stated, "both are kept side by side, nothing is superseded wrongly"


@pytest.mark.parametrize(("first", "second"), UNRELATED)
def test_what_only_sounds_like_a_correction_replaces_nothing(first: str, second: str) -> None:
    talk = Talk()
    talk.hear(first)
    talk.hear(second)
    assert not [fact for fact in talk.known.values() if fact.superseded_by is not None]


def test_another_session_is_not_corrected() -> None:
    talk = Talk()
    talk.hear("The dev proxy listens on port 5173.", session="home")
    talk.hear("no wait, make that 5174")
    talk.hear("消息队列就用 Kafka", session="home")
    talk.hear("还是用回 RabbitMQ 吧")
    assert all(fact.superseded_by is None for fact in talk.known.values())


def test_where_two_could_be_meant_both_stay() -> None:
    talk = Talk()
    talk.hear("The dev proxy listens on port 5173.")
    talk.hear("The mail catcher listens on port 8025.")
    talk.hear("sorry, make that 5174")
    assert len(talk.current) == 3


def test_a_model_that_echoes_a_correction_replaces_nothing() -> None:
    talk = Talk()
    talk.hear("The payment gateway listens on port 7002.")
    talk.hear("I mixed that up. The payment gateway listens on port 7020.")
    before = talk.current
    assert before == ["The payment gateway listens on port 7020."]
    for echo in ("Corrected, the upstream port is 7020 now.", "收到，upstream 已改为 7020。"):
        talk.hear(echo, BY_MODEL)
    assert before[0] in talk.current
    talk.hear("Actually, the constant is 7021 now, in `gateway/port.py`.", BY_MODEL)
    assert before[0] in talk.current, "half a sentence of a model corrects no user"


def test_half_a_sentence_carries_the_name_of_what_it_followed() -> None:
    talk = Talk()
    talk.hear("The staging API listens on port 8443.")
    talk.hear("no wait, make that 9000")
    talk.hear("make that 9001")
    talk.hear("The staging API listens on port 9100.")
    assert talk.current == ["The staging API listens on port 9100."]
    facts = tuple(talk.known.values())
    versions = chain(facts, facts[0].id)
    assert [fact.at for fact in versions] == [1.0, 2.0, 3.0, 4.0]
    assert [as_of(facts, at) for at in (1.0, 2.5, 3.5, 9.0)] == [(one,) for one in versions]


def test_a_word_more_or_less_may_name_another_thing() -> None:
    talk = Talk()
    talk.hear("The legacy gateway listens on port 8443.")
    talk.hear("sorry, the gateway listens on port 9000")
    talk.hear("The legacy gateway listens on port 9100.")
    assert talk.current == [
        "the gateway listens on port 9000",
        "The legacy gateway listens on port 9100.",
    ]


def test_a_pinned_fact_is_not_corrected() -> None:
    talk = Talk()
    talk.hear("The staging API listens on port 8443.")
    talk.known = {id_: replace(one, pinned=True) for id_, one in talk.known.items()}
    talk.hear("no wait, make that 9000")
    assert len(talk.current) == 2
    assert "may not replace" in talk.last[0].reason


def test_the_words_before_announce_a_correction() -> None:
    assert Talk().hear("ah, I misread the mail. The kickoff is on 13 June.")[-1].corrects
    assert not Talk().hear("Nice mail. The kickoff is on 13 June.")[-1].corrects
