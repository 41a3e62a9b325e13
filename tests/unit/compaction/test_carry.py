"""What code takes over a cut, and how it stands in a summary."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.compaction.worked import assistant, calls, history, results, user

from recollect.core.compaction.carry import (
    FAILURE_CHARS,
    MAX_FAILURES,
    SUMMARY_CHARS,
    append_carried,
    carry,
)
from recollect.core.formats.summaries import PI_CLOSING
from recollect.core.rules.tokens import count_text
from recollect.core.values.compaction import Carried, ToolFailure


def done(summary: str, carried: Carried, rules: str = "", tokens: int = 4_000) -> str:
    return append_carried(summary, carried, rules, most_tokens=tokens, count_tokens=count_text)


class TestFiles:
    @pytest.mark.parametrize(
        ("name", "arguments", "read", "modified"),
        [
            ("read", {"path": "a.py"}, ("a.py",), ()),
            ("Read", {"file_path": "a.py"}, ("a.py",), ()),
            ("read_file", {"filename": "a.py"}, ("a.py",), ()),
            ("write", {"path": "a.py", "content": "x"}, (), ("a.py",)),
            ("MultiEdit", {"file_path": "a.py"}, (), ("a.py",)),
            ("str_replace", {"path": "a.py"}, (), ("a.py",)),
            ("str_replace_based_edit_tool", {"command": "view", "path": "a"}, ("a",), ()),
            ("str_replace_based_edit_tool", {"command": "create", "path": "a"}, (), ("a",)),
            (
                "apply_patch",
                {"input": "*** Begin Patch\n*** Update File: src/a.py\n*** Add File: b.py\n"},
                (),
                ("b.py", "src/a.py"),
            ),
            ("shell", {"command": ["apply_patch", "*** Delete File: c.py\n"]}, (), ("c.py",)),
            ("bash", {"command": "cat a.py"}, (), ()),
            ("read", {"path": 3}, (), ()),
        ],
    )
    def test_tools_of_the_agents_we_know(
        self, name: str, arguments: dict[str, Any], read: Any, modified: Any
    ) -> None:
        carried = carry(history(assistant(calls(1, name, **arguments))))
        assert (carried.read_files, carried.modified_files) == (read, modified)


class TestFailures:
    def fail(self, n: int, command: str, said: str, *, error: bool = True) -> list[Any]:
        return [assistant(calls(n, "bash", command=command)), user(results(n, said, error=error))]

    def test_failures_say_what_was_tried_the_newest_each_once_and_short(self) -> None:
        carried = carry(history(*self.fail(1, "make all", "building\nError: no rule for x\nbye")))
        assert [(one.tool, one.said) for one in carried.failures] == [
            ("bash", "make all: Error: no rule for x")
        ]
        messages: list[Any] = []
        for n in range(30):
            messages += self.fail(n, f"run {n % 15}", "Error: " + "x" * 500)
        carried = carry(history(*messages))
        assert [one.said.split(":")[0] for one in carried.failures] == [
            f"run {n}" for n in range(7, 15)
        ]
        assert len(carried.failures) == MAX_FAILURES
        assert all(len(one.said) <= FAILURE_CHARS for one in carried.failures)
        before = carry(history(*self.fail(1, "make: it", "Error: broken")))
        carried = carry(
            history(
                *self.fail(2, "npm test", "Error: red"),
                *self.fail(3, "npm test", "all green", error=False),
                *self.fail(4, "make: it", "made", error=False),
            ),
            before,
        )
        assert carried.failures == ()

    @pytest.mark.parametrize(
        ("said", "failed"),
        [
            ("pytest: 3 failed\n\nCommand exited with code 1", True),
            ('{"output":"' + "E   assert 1 == 2 " * 9 + '","metadata":{"exit_code":1}}', True),
            ("all good\nexit code: 0", False),
            ("(no output)\n\nCommand exited with code 1", False),
            ("The error handling chapter is fine.", False),
        ],
    )
    def test_a_result_may_say_so_without_a_mark(self, said: str, failed: bool) -> None:
        carried = carry(history(*self.fail(1, "x", said, error=False)))
        assert bool(carried.failures) is failed


class TestIdentifiers:
    def test_what_is_spoken_of_often_comes_first_and_fades(self) -> None:
        carried = carry(
            history(
                user("see ancient_name and src/core/often.py"),
                assistant("src/core/often.py it is; src/core/often.py"),
            )
        )
        assert carried.identifiers.index("src/core/often.py") < carried.identifiers.index(
            "ancient_name"
        )
        later = carry(history(user("now fix_this_thing")), carried).identifiers
        assert later.index("fix_this_thing") < later.index("ancient_name")


FULL = Carried(
    read_files=("a.py", "b.py"),
    modified_files=("c.py",),
    failures=(ToolFailure(tool="bash", said="make: Error: x"),),
    identifiers=("src/deep/name.py", "4f2a9c1d"),
)


class TestAppended:
    def test_the_sections_stand_behind_the_body_as_pi_spells_them(self) -> None:
        text = done(
            "## Goal\nShip it.\n\n## Exact identifiers\n- 4f2a9c1d: the build", FULL, "Be kind."
        )
        assert text == (
            "## Goal\nShip it.\n\n"
            "## Exact identifiers\n- 4f2a9c1d: the build\n- Verbatim: src/deep/name.py\n\n"
            "## Tool failures\n- bash: make: Error: x\n\n"
            "<read-files>\na.py\nb.py\n</read-files>\n\n"
            "<modified-files>\nc.py\n</modified-files>\n\n"
            "<workspace-critical-rules>\nBe kind.\n</workspace-critical-rules>"
        )


_ANY = st.text(max_size=400) | st.sampled_from(["x " * 9_000, "名字 " * 9_000, "</summary>", "---"])


@given(
    body=st.lists(_ANY, max_size=4).map("\n## Progress\n".join),
    files=st.lists(st.text(min_size=1, max_size=60), max_size=60),
    failed=st.lists(st.text(max_size=240), max_size=8),
    names=st.lists(st.text(min_size=1, max_size=90), max_size=64),
    rules=_ANY,
    tokens=st.sampled_from([100, 409, 4_000]),
)
def test_a_whole_summary_keeps_to_its_bounds(
    body: str, files: list[str], failed: list[str], names: list[str], rules: str, tokens: int
) -> None:
    carried = Carried(
        read_files=tuple(files),
        modified_files=tuple(files[::-1]),
        failures=tuple(ToolFailure(tool="bash", said=one) for one in failed),
        identifiers=tuple(names),
    )
    text = done(body, carried, rules, tokens)
    assert len(text) <= SUMMARY_CHARS
    assert count_text(text) <= tokens
    assert PI_CLOSING.strip() not in text
    rules_at = text.find("<workspace-critical-rules>")
    if rules_at >= 0:
        assert len(text) - rules_at <= max(SUMMARY_CHARS // 4, 0)
        assert text.endswith("</workspace-critical-rules>")
