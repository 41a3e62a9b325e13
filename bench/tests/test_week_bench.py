"""The week that is played through the hooks: its story, and prompts that the story answers."""

from datetime import timedelta

from recollect_bench.week import run
from recollect_bench.week.story import (
    ASKED_AT,
    FIRST_DAY,
    Probe,
    plain_text,
    read_probes,
    read_story,
)
from recollect_bench.week.tool_output import output_of

KINDS = {
    "question": 40,
    "rule": 16,
    "gone": 3,
    "time": 12,
    "folder-worktree": 4,
    "folder-clone": 4,
    "subagent": 8,
    "ordinary": 60,
}


def test_story_has_a_week_and_one_compaction() -> None:
    sittings = read_story()
    assert len(sittings) == 14
    assert {(sitting.began_at - FIRST_DAY).days for sitting in sittings} == set(range(5))
    assert sum(turn.compacted for sitting in sittings for turn in sitting.turns) == 1
    assert sum(bool(turn.task) for sitting in sittings for turn in sitting.turns) == 2
    assert FIRST_DAY + timedelta(days=5) < ASKED_AT


def test_half_of_each_kind_is_held_out() -> None:
    probes = read_probes()
    assert {kind: sum(probe.kind == kind for probe in probes) for kind in KINDS} == KINDS
    for kind, count in KINDS.items():
        held_out = sum(probe.kind == kind for probe in read_probes("held-out"))
        assert abs(2 * held_out - count) <= 1


def _told(probe: Probe, text: str) -> bool:
    return all(any(word in text for word in group) for group in probe.needs)


def test_each_question_is_answered_in_the_story() -> None:
    texts = [
        text
        for sitting in read_story()
        for turn in sitting.turns
        for text in (turn.prompt, turn.answer, turn.result, *turn.lines)
    ]
    story = plain_text("\n".join(texts))
    for probe in read_probes():
        if probe.kind == "ordinary":
            assert not probe.needs
        elif probe.kind != "time":
            assert _told(probe, story), probe.prompt


def test_needs_are_groups_of_alternatives() -> None:
    probe = Probe(kind="question", half="tune", prompt="?", needs=(("2222",), ("/in/", "folder")))
    assert probe.is_met("Port `2222`, in the FOLDER of the agency")
    assert not probe.is_met("Port 2222")
    assert probe.answering("Nothing. Port 2222 is open.\nThe end") == len("Port 2222 is open.")


def test_tool_output_is_the_same_each_time() -> None:
    assert output_of("read", "api/main.py", 3) == output_of("read", "api/main.py", 3)
    assert output_of("grep", "level", 3) != output_of("grep", "level", 4)


def test_quick_run_plays_hooks() -> None:
    result = run(lambda _: None, quick=True)
    assert result.figures["messages"] > 100
    assert result.figures["words_answers"] > 0
    assert result.figures["words_hook_p50"] > 0
