"""`recollect explain` as a user runs it: a process, a file, what is on the screen."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.harness.forked_cli import run_forked

# Built here, so that no scanner takes this file for a leak.
SECRET = "sk-ant-api03-" + "Zq7Rw2Lk9Pf4Xv8B" * 5 + "-AAAAAAAA"


def explain(
    *arguments: str | Path, stdin: bytes | None = None, columns: int = 80
) -> subprocess.CompletedProcess[bytes]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RECOLLECT_") and name not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}
    }
    return run_forked(
        ["explain", *map(str, arguments)],
        stdin=stdin or b"",
        env={**variables, "PYTHONIOENCODING": "utf-8", "COLUMNS": str(columns)},
        cwd=Path.cwd(),
        timeout=120,
    )


def explained(*arguments: str | Path) -> dict[str, Any]:
    done = explain(*arguments, "--json")
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def drawn(*arguments: str | Path, columns: int = 80) -> str:
    done = explain(*arguments, columns=columns)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def pi_session(turns: int = 6, *, output_words: int = 40) -> list[dict[str, Any]]:
    """A session with one call a turn; the call of the last turn but one has no result."""
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-01-01T10:00:00Z"}
    ]
    parent: str | None = None

    def add(number: int, message: dict[str, Any]) -> None:
        nonlocal parent
        entry = f"e{len(lines)}"
        lines.append(
            {
                "type": "message",
                "id": entry,
                "parentId": parent,
                "timestamp": f"2026-01-01T10:{number:02d}:00Z",
                "message": message,
            }
        )
        parent = entry

    for turn in range(turns):
        call = {"type": "toolCall", "id": f"c{turn}", "name": "read", "arguments": {"n": turn}}
        add(turn, {"role": "user", "content": f"question {turn} about the parser"})
        add(turn, {"role": "assistant", "content": [call], "stopReason": "toolUse"})
        if turn != turns - 2:
            result = [{"type": "text", "text": f"row {turn} of the table\n" * output_words}]
            add(
                turn,
                {
                    "role": "toolResult",
                    "toolCallId": f"c{turn}",
                    "toolName": "read",
                    "content": result,
                    "isError": False,
                },
            )
        answer = [{"type": "text", "text": f"answer {turn}"}]
        add(turn, {"role": "assistant", "content": answer, "stopReason": "stop"})
    return lines


def request_body() -> dict[str, Any]:
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "system": "You are careful. " * 20,
        "tools": [{"name": "read", "description": "reads", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "read a"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "u1", "name": "read", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "u1", "content": "aaa " * 80}],
            },
        ],
    }


@pytest.fixture
def pi_file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "session.jsonl", pi_session())


def assert_adds_up(told: dict[str, Any]) -> None:
    """What must hold of any explanation."""
    assert sum(share["came_tokens"] for share in told["kinds"]) == told["came_tokens"]
    assert sum(share["sent_tokens"] for share in told["kinds"]) == told["sent_tokens"]
    numbers = [fate["number"] for fate in told["fates"] if fate["number"] is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(fate["reason"] for fate in told["fates"])
    results = next(s for s in told["kinds"] if s["kind"] == "tool results")
    assert sum(tool["came_tokens"] for tool in told["tools"]) == results["came_tokens"]
    assert told["filling"][-1]["turn"] == told["turn"]
    assert told["filling"][-1]["sent_tokens"] == told["sent_tokens"]


def test_every_kind_is_detected_and_adds_up(tmp_path: Path) -> None:
    files = {
        "pi": write_lines(tmp_path / "a", pi_session()),
        "request": write_lines(tmp_path / "e", [request_body()]),
    }
    for kind, path in files.items():
        told = explained(path)
        assert told["recording"]["kind"] == kind
        assert told["turn"] == told["turns"]
        assert_adds_up(told)
        screen = drawn(path)
        assert f"{told['came_tokens']:,}" in screen
        assert told["tools"][0]["tool"] in screen
        assert "tool results" in screen


def test_system_prompt_and_tools_of_a_body_are_counted(tmp_path: Path) -> None:
    told = explained(write_lines(tmp_path / "body.json", [request_body()]))
    kinds = {share["kind"]: share["came_tokens"] for share in told["kinds"]}
    assert kinds["system"] > 50
    assert kinds["tools"] > 5
    assert told["window"]["source"] == "model"


def test_the_turn_chosen_changes_the_numbers(pi_file: Path) -> None:
    first, last = explained(pi_file, "--turn", "1"), explained(pi_file)
    assert len(first["fates"]) < len(last["fates"])
    assert first["came_tokens"] < last["came_tokens"]
    assert explained(pi_file, "--turn", "-1") == last
    assert explained(pi_file, "--turn", "-12")["turn"] == 1


def test_a_small_window_leaves_messages_out_and_says_why(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "long.jsonl", pi_session(40, output_words=60))
    whole, tight = explained(path, "--window", "200_000"), explained(path, "--window", "4k")
    assert whole["came_tokens"] == whole["sent_tokens"] - sum(
        share["sent_tokens"] for share in whole["kinds"] if share["kind"] == "ours"
    )
    left = [fate for fate in tight["fates"] if fate["fate"] == "left out"]
    assert left
    assert all(fate["tokens_after"] == 0 and fate["reason"] for fate in left)
    assert tight["sent_tokens"] <= tight["window"]["limit_tokens"] < tight["came_tokens"]
    assert tight["window"] | {"tokens": 4000, "source": "argument"} == tight["window"]
    assert any(point["moment"] == "over-limit" for point in tight["filling"])
    screen = drawn(path, "--window", "4k", columns=200)
    assert "left out" in screen
    assert left[0]["reason"].split(" (score")[0] in screen


def test_unanswered_calls_are_told(pi_file: Path) -> None:
    told = explained(pi_file)
    (inserted,) = [fate for fate in told["fates"] if fate["fate"] == "inserted"]
    assert inserted["reason"] in drawn(pi_file, columns=200)


def test_output_is_plain_and_within_the_width(pi_file: Path) -> None:
    for columns in (80, 140):
        screen = drawn(pi_file, columns=columns)
        assert "\x1b" not in screen
        assert max(map(len, screen.splitlines())) <= columns


def test_transcripts_cannot_write_to_the_terminal_nor_leak_secrets(tmp_path: Path) -> None:
    nasty = f"\x1b]0;owned\x07\x1b[31m[bold]red[/bold]\u202e\u200b key {SECRET} \x9b2J end"
    lines = pi_session(2)
    lines[1]["message"]["content"] = nasty * 20
    path = write_lines(tmp_path / "nasty.jsonl", lines)
    listed = drawn(path, "--all")
    assert "#1 " in listed and "#2 " in listed
    for screen in (drawn(path), listed, json.dumps(explained(path))):
        assert SECRET not in screen
        assert SECRET[:24] not in screen
        assert "\x1b" not in screen
        assert "\\u001b" not in screen
        assert "\u202e" not in screen
        assert "\x9b" not in screen
    assert "[bold]red[/bold]" in drawn(path)


def test_a_file_without_a_request_is_explained_as_the_next_one(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "new.jsonl", pi_session(1)[:2])
    told = explained(path)
    assert told["next_request"]
    assert [fate["fate"] for fate in told["fates"]] == ["kept"]
    assert "next request" in drawn(path)


def test_standard_input_and_gzip_are_read(pi_file: Path) -> None:
    packed = gzip.compress(pi_file.read_bytes())
    done = explain("-", "--json", stdin=packed)
    assert done.returncode == 0
    told, known = json.loads(done.stdout), explained(pi_file)
    assert told["fates"] == known["fates"]
    assert told["recording"]["file"] == "standard input"


def test_bad_choices_are_one_line_with_what_is_allowed(pi_file: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    header = write_lines(tmp_path / "header.jsonl", pi_session(1)[:1])
    noise = tmp_path / "noise.bin"
    noise.write_bytes(bytes(range(256)) * 8)
    for arguments, told in (
        ((pi_file, "--turn", "99"), "1 to 12"),
        ((pi_file, "--turn", "0"), "1 to 12"),
        ((pi_file, "--turn", "-13"), "1 to 12"),
        ((pi_file, "--window", "lots"), "between 1,000 and"),
        ((pi_file, "--window", "12"), "between 1,000 and"),
        ((tmp_path / "missing.jsonl",), "`recollect replay missing.jsonl"),
        ((tmp_path,), "folder"),
        ((empty,), "empty"),
        ((header,), "no messages"),
        ((noise,), "no known format"),
    ):
        done = explain(*arguments)
        said = done.stderr.decode()
        assert done.returncode == 2, arguments
        assert told in said
        assert said.count("\n") == 1
        assert done.stdout == b""


def test_the_turns_are_drawn_into_a_file_that_stands_alone(pi_file: Path, tmp_path: Path) -> None:
    picture = tmp_path / "turns.svg"
    assert explain(pi_file, "--svg", picture, "--window", "4k").returncode == 0
    drawn = ElementTree.fromstring(picture.read_text(encoding="utf-8"))
    words = "".join(drawn.itertext())
    assert "Tool results" in words
    assert "turn 1" in words
    assert "http" not in words
    refused = explain(pi_file, "--svg", tmp_path / "missing" / "turns.svg")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1


def test_a_closed_pipe_is_no_error_message(pi_file: Path) -> None:
    script = "from recollect.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", script, "explain", str(pi_file), "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        said = running.stderr.read().decode()
        running.wait(timeout=60)
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("pi_before-compaction.jsonl.gz", "128k"),
        ("pi_large-session.jsonl.gz", "32k"),
        ("codex_session.jsonl.gz", "32k"),
        ("codex_session_patches.jsonl.gz", "200k"),
    ],
)
def test_real_recordings_add_up(name: str, window: str, data: Path) -> None:
    told = explained(data / "transcripts" / name, "--window", window)
    assert_adds_up(told)
    assert not [stage for stage in told["stages"] if stage["outcome"] == "late"]
    assert told["skipped_turns"] == 0
    if name.startswith("pi_"):
        assert told["came_tokens"] == pytest.approx(told["reported_tokens"], rel=0.02)
