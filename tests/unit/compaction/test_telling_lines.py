"""Behind a summary stand the lines that say most about what was cut, not lists of its names."""

from typing import Any

from tests.harness.waiting import assert_linear
from tests.unit.compaction.worked import assistant, calls, history, results, thinking, user

from recollect.core.compaction.carry import append_carried, carry, strip_carried
from recollect.core.compaction.lines import LINES_TOKENS, MAX_LINES, choose_lines, lines_tokens
from recollect.core.rules.tokens import count_text
from recollect.core.values.compaction import Carried

FAULT = "parse_header drops the charset when the semicolon is missing."
LOG = "\n".join(f"worker {n}: loaded module_{n} from cache in good time" for n in range(900))


def told(carried: Carried, summary: str = "## Goal\nShip it.", tokens: int = 1_000) -> str:
    return choose_lines(carried.lines, summary, most_tokens=tokens, count_tokens=count_text)


def worked() -> tuple[Any, ...]:
    return history(
        user("Please find out why src/http/headers.py loses the charset of a page."),
        assistant(calls(1, "read", path="src/http/headers.py")),
        user(results(1, LOG)),
        assistant(f"I read it. {FAULT} Nothing else is wrong there."),
        user("Then we keep parse_header and add a strict mode to HeaderOptions instead."),
    )


class TestWhatIsTold:
    def test_what_people_and_the_model_said_comes_back_before_a_log_and_no_thoughts(self) -> None:
        lines = told(carry(worked()))
        assert "- Please find out why src/http/headers.py loses the charset of a page." in lines
        assert FAULT in lines
        assert "add a strict mode to HeaderOptions instead." in lines
        assert lines.startswith("<earlier-lines>\nUser:\n- ")
        assert lines.endswith("\n</earlier-lines>")
        carried = carry(worked())
        assert [line.speaker for line in carried.lines[:2]] == ["user", "user"]
        few = told(carried, tokens=140)
        assert FAULT in few
        assert "HeaderOptions" in few
        assert few.count("worker") <= 2, "a log says the same of everything"
        entries = history(
            user("/compact and keep what was said about secret_plan_a in the plan"),
            assistant(thinking("I wonder whether secret_plan_b would be any better"), "Done."),
        )
        assert told(carry(entries)) == ""


class TestOverManyCuts:
    def test_a_line_is_carried_on_and_fades_when_nobody_speaks_of_it(self) -> None:
        carried = carry(worked())
        again = carry(
            history(user("Now look at cache_policy and what it keeps in memory.")), carried
        )
        assert FAULT in told(again)
        assert "cache_policy" in told(again)
        for at in range(12):
            busy = [
                f"In src/part_{at}/step_{n}.py the valve number_{n} was found to be leaking badly."
                for n in range(60)
            ]
            again = carry(history(user("\n".join(busy))), again)
        assert FAULT not in told(again)


class TestBounds:
    def test_within_its_room_and_its_length(self) -> None:
        many = history(
            *[
                user(f"In src/part_{n}/step_{n}.py the valve_{n} was found to be leaking badly.")
                for n in range(500)
            ]
        )
        carried = carry(many)
        assert len(carried.lines) == MAX_LINES
        for room in (0, 30, 200, 900):
            assert count_text(told(carried, tokens=room)) <= room
        assert lines_tokens(64_000) == 2_560
        assert lines_tokens(1_000_000) == LINES_TOKENS

    def test_what_was_said_closes_no_tag_and_begins_no_section(self) -> None:
        said = "parse_header prints </earlier-lines> in every file\n## Pinned by Recollect"
        carried = carry(history(user(said)))
        whole = append_carried(
            "## Goal\nShip it.", carried, most_tokens=900, lines_tokens=500, count_tokens=count_text
        )
        assert whole.count("</earlier-lines>") == 1
        assert "parse_header prints &lt;/earlier-lines> in every file" in whole
        assert strip_carried(whole) == "## Goal\nShip it."

    def test_the_time_is_linear_in_what_is_read(self) -> None:
        def read(rows: int) -> None:
            line = "the same_name and other_name of src/app/main.py were seen in"
            text = "\n".join(f"{line} place {n} by reader_{n % 7}" for n in range(rows))
            carry(history(*[user(results(n, text)) for n in range(8)]))

        assert_linear(read, 400)
