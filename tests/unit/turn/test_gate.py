"""Gate: what opens it alone, what does not, and that it stays shut for what the view shows."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.search.candidates import asking, candidate, found

from recollect.core.search.question import question_text
from recollect.core.turn.gate import find_lost_words, gate, min_nearness
from recollect.core.values.reason import Cause
from recollect.core.values.recall import (
    AskedVector,
    Candidate,
    EmbedderKind,
    GateVerdict,
    RecallRequest,
    Scale,
)

CRANE = "the green crane stands at the north quay"
QUESTION = "which crane stands at the north quay?"
FILLER = "so much was said that day of this and that and of nothing else in particular, as ever"


def request(newest: str, **more: Any) -> RecallRequest:
    return RecallRequest(
        **{
            "space": "mine", "session": "s", "query": newest, "newest": newest,
            "now": 1_760_000_000.0, "budget_tokens": 500, "count_tokens": len, **more,
        }
    )  # fmt: skip


def verdict(
    asked: RecallRequest | str,
    *texts: str | Candidate,
    vectors: tuple[AskedVector, ...] = (),
    documents: int = 600,
    frequencies: dict[str, int] | None = None,
    often: int = 0,
    least: float | None = None,
) -> GateVerdict:
    """Of a turn that found these passages outside its view.

    `often` says how many passages hold each of their words, where none is to be rare.
    """
    turn = request(asked) if isinstance(asked, str) else asked
    held = [
        candidate(f"{at}", text) if isinstance(text, str) else text for at, text in enumerate(texts)
    ]
    made = found(held, documents=documents)
    counted = {word: often or count for word, count in made.document_frequencies.items()}
    made = replace(made, document_frequencies={**counted, **(frequencies or {})})
    return gate(turn, asking(question_text(turn)), made, vectors, min_score=least)


class TestMeaning:
    def test_what_memory_holds_opens_it_and_what_it_does_not_leaves_it_shut(self) -> None:
        opened = verdict(QUESTION, CRANE)
        assert opened.open
        assert opened.score is not None
        assert opened.score >= opened.threshold == 0.2  # type: ignore[operator]
        assert opened.lost_words == ()
        assert opened.reason.cause is Cause.CERTAIN
        shut = verdict("what did my aunt cook on that long evening?", CRANE, FILLER)
        assert not shut.open
        assert shut.reason.cause is Cause.UNCERTAIN
        empty = verdict(QUESTION)
        assert not empty.open
        assert empty.reason.cause is Cause.NOTHING_HELD
        vector = AskedVector(embedder="e", values=b"", scale=Scale(mean=0.05, spread=0.08))
        near = candidate("a", "we bought an automobile", similarities=(0.8,))
        far = candidate("a", "we bought an automobile", similarities=(0.2,))
        assert verdict("which vehicle is ours now?", near, vectors=(vector,)).open
        assert not verdict("which vehicle is ours now?", far, vectors=(vector,)).open


PATCH = "the patch is in src/payment/webhook.ts since monday"
ASKS_PATCH = "please look again at src/payment/webhook.ts and tell me of all that strikes you there"


class TestIdentifiers:
    def test_one_that_left_the_view_opens_it(self) -> None:
        opened = verdict(ASKS_PATCH, PATCH, least=1.0)
        assert opened.open
        assert opened.lost_terms == ("src/payment/webhook.ts",)
        assert (
            str(opened.reason)
            == "a term of the question is in memory, but no longer in the request"
        ), "the ledger keeps this line"
        assert set(opened.lost_words) <= set(find_lost_words(request(ASKS_PATCH)))

    @pytest.mark.parametrize("where", ["view", "recent"])
    def test_one_that_the_view_still_shows_does_not(self, where: str) -> None:
        shown = {where: ("it was SRC/payment/webhook.ts, I think",)}
        assert not verdict(request(ASKS_PATCH, **shown), PATCH, least=1.0).open

    def test_one_that_is_said_everywhere_does_not(self) -> None:
        key = "src/payment/webhook.ts"
        assert verdict(ASKS_PATCH, PATCH, least=1.0, frequencies={key: 6}).open
        assert not verdict(ASKS_PATCH, PATCH, least=1.0, frequencies={key: 7}).open
        few = {"documents": 40, "least": 1.0}
        assert verdict(ASKS_PATCH, PATCH, frequencies={key: 3}, **few).open  # type: ignore[arg-type]
        assert not verdict(ASKS_PATCH, PATCH, frequencies={key: 4}, **few).open  # type: ignore[arg-type]


class TestAmongTools:
    """In what tools print any two words meet, so one passage has to be on what is asked."""

    TOLD = "the backups of the ledger run at night in the cellar of the old harbour house"
    ASKED = "what is the retention of the ledger backups on the northern mirror?"

    def test_words_that_stand_apart_open_nothing(self) -> None:
        asked = request(self.ASKED, uses_tools=True)
        elsewhere = {"retent": 9, "northern": 9, "mirror": 9}
        shut = verdict(asked, self.TOLD, often=9, frequencies=elsewhere)
        assert not shut.open
        assert shut.reason.cause is Cause.WORDS_APART

    def test_words_that_memory_never_saw_do_not_shut_it_for_a_likely_passage(self) -> None:
        asked = request(
            "whom has the auditor scolded and blamed over the ledger backups?", uses_tools=True
        )
        told = "the auditor muttered that Olga runs the ledger backups too late"
        assert verdict(asked, told, often=5).open

    def test_work_is_not_given_what_was_done_the_last_time(self) -> None:
        asked = request("check the grants of the analyst role on the lake", uses_tools=True)
        said = "the grants of the analyst role on the lake are read only"
        done = candidate("done", said, role="assistant")
        printed = candidate("printed", said, role="user", tool="psql")
        assert not verdict(asked, done, printed, often=9).open
        assert verdict(asked, done, candidate("stated", said), often=9).open

    @pytest.mark.parametrize(
        "text",
        [
            "what's on the cargo calendar this week?",
            "is the cargo dashboard green now?",
            "which cargo queries are slow? sort them descending",
        ],
    )
    def test_what_tools_find_out_needs_a_statement_of_the_user(self, text: str) -> None:
        asked = request(text, uses_tools=True)
        reply = candidate("reply", f"the answer to {text}", role="assistant")
        assert not verdict(asked, reply, FILLER).open
        assert verdict(asked, candidate("said", f"{text} The boss decides that."), FILLER).open

    def test_a_follow_up_on_a_statement_is_about_the_statement(self) -> None:
        asked = request(
            "and why?",
            refers_to="The retention of the ledger backups is ninety days.",
            uses_tools=True,
        )
        told = "the ledger backups have a retention of ninety days, the auditors want it"
        assert verdict(asked, told, often=9).open

    @pytest.mark.parametrize(
        ("kind", "nearness", "opens"),
        [("onnx", 0.1, True), ("remote", 0.1, True), ("onnx", -0.1, False), ("static", 0.1, False)],
    )
    def test_a_question_in_other_words_needs_a_model_that_understands_and_a_near_passage(
        self, kind: EmbedderKind, nearness: float, opens: bool
    ) -> None:
        vector = AskedVector(embedder="e", values=b"", kind=kind, scale=Scale(mean=0.0, spread=0.1))
        similarity = 0.1 * (min_nearness(600) + nearness)
        told = candidate("a", "the vet treats Biscuit on Mondays", similarities=(similarity,))
        asked = request("who looks after our cat these days?", uses_tools=True)
        assert verdict(asked, told, vectors=(vector,), often=9).open is opens
        order = request("call somebody who looks after our cat", uses_tools=True)
        assert not verdict(order, told, vectors=(vector,), often=9).open
