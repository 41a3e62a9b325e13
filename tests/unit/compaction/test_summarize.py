"""From a cut plan to a whole summary, with a model that answers by a script."""

import asyncio
import re
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.compaction.worked import (
    RULES,
    WORDS,
    assistant,
    calls,
    compaction,
    good_summary,
    history,
    long_history,
    plan_of,
    results,
    user,
)

from recollect.core.compaction.carry import SUMMARY_CHARS, strip_carried
from recollect.core.compaction.summarize import TURN_JOINT, Summarizer
from recollect.core.rules.tokens import count_text
from recollect.core.values.compaction import Carried, CutPlan, NoSummary, Summarized
from recollect.core.values.model import Prompt
from recollect.testing.scripted_model import ScriptedModel

WINDOW = 16_000


def run(plan: CutPlan, model: ScriptedModel, window: int = WINDOW, **more: Any) -> Summarized:
    done = tried(plan, model, window, **more)
    assert isinstance(done, Summarized), done
    return done


def tried(
    plan: CutPlan, model: ScriptedModel, window: int = WINDOW, **more: Any
) -> Summarized | NoSummary:
    settings = more.pop("settings", compaction())
    before = more.pop("previous_summary", ""), more.pop("previous_carried", None)
    made = Summarizer(model.ask, settings, RULES, window_tokens=window, **more)
    done = asyncio.run(made.summarize(plan, *before))
    assert done.spent.calls == len(model.prompts) <= done.spent.max_calls
    return done


def always(text: str) -> ScriptedModel:
    return ScriptedModel(lambda prompt: text)


def numbered() -> ScriptedModel:
    """Each answer says which it is, and which of the numbered answers it was shown."""
    told: list[int] = []

    def answer(prompt: Prompt) -> str:
        told.append(1)
        seen = "-".join(sorted(set(re.findall(r"answer(\d+)", prompt.text)), key=int))
        return good_summary(f"answer{len(told)} from [{seen}]")

    return ScriptedModel(answer)


class TestOnePiece:
    def test_a_short_history_takes_one_call(self) -> None:
        model = ScriptedModel([good_summary()])
        done = run(plan_of(long_history(4)), model)
        model.check()
        assert "A parser that streams." in done.text
        assert done.chunks == 1
        assert done.notes == ()

    def test_the_summary_before_goes_in_without_what_code_added(self) -> None:
        before = run(
            plan_of(history(assistant(calls(1, "read", path="a.py")), *[user(WORDS * 20)] * 2)),
            always(good_summary("first")),
            rules_text="Be kind.",
        )
        assert "<read-files>" in before.text
        model = always(good_summary("second"))
        after = run(
            plan_of(long_history(4)),
            model,
            previous_summary=before.text,
            previous_carried=before.carried,
            rules_text="Be kind.",
        )
        text = model.prompts[0].text
        assert "<previous-summary>" in text
        assert "A first that streams." in text
        assert "read-files" not in text
        assert "Be kind." not in text
        assert after.text.count("<read-files>\na.py\n</read-files>") == 1
        assert after.text.endswith("Be kind.\n</workspace-critical-rules>")


class TestStages:
    def test_a_long_history_is_read_in_pieces_every_message_once(self) -> None:
        model = numbered()
        done = run(plan_of(long_history(40)), model, settings=compaction(max_history_share=0.9))
        assert done.chunks > 1
        assert len(model.prompts) == done.chunks + 1
        merge = model.prompts[-1].text
        assert [f"answer{n}" in merge for n in range(1, done.chunks + 1)] == [True] * done.chunks
        assert f"Part 1 of {done.chunks}" in merge
        for prompt in model.prompts:
            asked = count_text(prompt.text) + count_text(prompt.system)
            assert asked + prompt.max_output_tokens <= WINDOW
        model = numbered()
        run(plan_of(long_history(120)), model)
        read = "".join(prompt.text for prompt in model.prompts)
        for n in range(120):
            assert read.count(f"[User]: Question {n}:") == 1

    @pytest.mark.parametrize("window", [4_096, 8_192, 64_000, 1_000_000])
    def test_prompts_and_summary_fit_any_window(self, window: int) -> None:
        turns = min(400, max(12, window // 150))
        model = numbered()
        done = run(plan_of(long_history(turns, 4), long_history(6, 4)), model, window)
        for prompt in model.prompts:
            asked = count_text(prompt.text) + count_text(prompt.system)
            assert asked + prompt.max_output_tokens <= window
        assert count_text(done.text) <= min(4_000, window // 10)
        assert len(done.text) <= SUMMARY_CHARS

    def test_over_the_share_the_oldest_are_summarized_apart_and_come_before(self) -> None:
        model = numbered()
        done = run(plan_of(long_history(80)), model, settings=compaction(max_history_share=0.3))
        update = [prompt for prompt in model.prompts if "<previous-summary>" in prompt.text]
        assert len(update) == 1
        assert "Question 79" in "".join(
            p.text for p in model.prompts[model.prompts.index(update[0]) :]
        )
        assert "Question 0:" not in update[0].text
        assert done.chunks > 2


class TestLargeMessages:
    def test_a_message_that_is_too_large_is_read_by_its_ends_and_noted(self) -> None:
        paste = "FIRST LINE\n" + "row of a log that goes on and on\n" * 4_000 + "LAST LINE"
        model = numbered()
        done = run(plan_of(history(user(paste), assistant("Seen."), user("go on"))), model)
        read = "".join(prompt.text for prompt in model.prompts)
        assert done.oversized == 1
        assert "FIRST LINE" in read
        assert "LAST LINE" in read
        assert done.text.count("[Large user message (~") == 1


class TestSplitTurn:
    def test_the_turns_beginning_follows_behind_its_rule(self) -> None:
        def answer(prompt: Prompt) -> str:
            return (
                "The user wants PREFIX."
                if "first part of a turn" in prompt.text
                else good_summary()
            )

        model = ScriptedModel(answer)
        done = run(plan_of(long_history(6), long_history(6)), model)
        assert len(model.prompts) == 2
        assert f"- readers wait for the stream{TURN_JOINT}The user wants PREFIX." in done.text


class TestAudited:
    def test_what_is_missing_is_named_once(self) -> None:
        lacking = good_summary().replace("## Open TODOs\n- tests\n\n", "")
        model = ScriptedModel([lacking, good_summary("second")])
        done = run(plan_of(long_history(6)), model)
        model.check()
        assert "- the heading ## Open TODOs" in model.prompts[1].text
        assert "A second that streams" in done.text
        assert done.notes == ()
        plain = "The parser streams, readers wait. FIRST"
        model = ScriptedModel([plain.replace("FIRST", "NEXT")])
        done = run(plan_of(long_history(6)), model, previous_summary=plain)
        model.check()
        assert "NEXT" in done.text
        assert any("no second attempt" in note for note in done.notes)
        assert any("the summary lacks" in note for note in done.notes)


class TestBounds:
    def test_a_deadline_that_passed_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = iter(range(0, 10_000, 100))
        passing = SimpleNamespace(monotonic=lambda: float(next(clock)))
        monkeypatch.setattr("recollect.core.compaction.summarize.time", passing)
        done = tried(plan_of(long_history(80)), numbered())
        assert isinstance(done, NoSummary)
        assert "deadline_seconds" in str(done.reason)
        assert done.spent.calls == 1


def test_ten_compactions_in_a_row_carry_code_lists_without_piling_up() -> None:
    text, carried = "", Carried()
    for n in range(10):
        entries = history(
            user(f"turn {n}: {WORDS * 20}"),
            assistant(calls(n, "edit", path=f"src/file{n}.py")),
            user(results(n, "ok")),
            assistant("done"),
        )
        done = run(
            plan_of(entries),
            always(good_summary(f"round{n}")),
            previous_summary=text,
            previous_carried=carried,
        )
        text, carried = done.text, done.carried
    assert text.count("<modified-files>") == 1
    assert text.count("## Exact identifiers") == 1
    assert all(f"src/file{n}.py" in text for n in range(10))
    assert "src/file" not in strip_carried(text)
