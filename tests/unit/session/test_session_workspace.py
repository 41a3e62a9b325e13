"""Workspace files in the system prompt, and the rules that outlast a compaction."""

import os
from datetime import date
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from recollect.adapters.session.workspace import (
    LoadedWorkspace,
    create_missing_files,
    load_workspace,
)
from recollect.adapters.wiring.memory import critical_rules

TODAY = date(2026, 3, 1)


def loaded(folder: Path, *, max_chars: int = 20_000, first_run: bool = False) -> LoadedWorkspace:
    return load_workspace(folder, max_chars=max_chars, today=TODAY, first_run=first_run)


def names(workspace: LoadedWorkspace) -> list[str]:
    return [file.name for file in workspace.files]


def test_the_files_in_their_order_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    every = ("HEARTBEAT", "USER", "IDENTITY", "TOOLS", "SOUL", "AGENTS", "BOOTSTRAP", "MEMORY", "X")
    for name in (*every, "memory/2026-03-01", "memory/2026-02-28", "memory/2026-02-27"):
        (tmp_path / f"{name}.md").write_text(f"text of {name}\n")
    expected = ["AGENTS", "SOUL", "TOOLS", "IDENTITY", "USER", "HEARTBEAT"]
    notes = ["MEMORY", "memory/2026-02-28", "memory/2026-03-01"]
    workspace = loaded(tmp_path)
    assert names(workspace) == [f"{name}.md" for name in expected + notes]
    assert names(loaded(tmp_path, first_run=True))[6] == "BOOTSTRAP.md"
    text = workspace.project_context
    assert text.startswith("# Project Context\n")
    assert "## SOUL.md\n\ntext of SOUL\n" in text
    assert "2026-02-27" not in text
    assert "BOOTSTRAP" not in text


def test_long_files_keep_head_and_tail_and_both_sizes_are_known(tmp_path: Path) -> None:
    text = "HEAD" + "x" * 30_000 + "TAIL"
    (tmp_path / "TOOLS.md").write_text(text)
    (file,) = loaded(tmp_path).files
    assert file.truncated
    assert len(file.raw) == 30_008
    assert len(file.text) <= 20_000
    assert file.text.startswith("HEAD")
    assert file.text.endswith("TAIL")
    assert "TOOLS.md has them" in file.text
    (short,) = loaded(tmp_path, max_chars=40_000).files
    assert not short.truncated


def test_links_out_of_the_workspace_are_refused_and_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "memory").mkdir(parents=True)
    (outside / "secret.md").write_text("secret")
    (outside / "memory" / "2026-03-01.md").write_text("secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "real.md").write_text("fine")
    (inside / "AGENTS.md").symlink_to("real.md")
    (inside / "SOUL.md").symlink_to(outside / "secret.md")
    (inside / "TOOLS.md").symlink_to("../outside/secret.md")
    (inside / "USER.md").symlink_to("USER.md")
    (inside / "IDENTITY.md").symlink_to("nowhere.md")
    (inside / "memory").symlink_to(outside / "memory")
    workspace = loaded(inside)
    assert names(workspace) == ["AGENTS.md"]
    assert "secret" not in workspace.project_context
    told = {note.split(" ")[0] for note in workspace.notes}
    assert told == {"SOUL.md", "TOOLS.md", "USER.md", "IDENTITY.md", "memory/2026-03-01.md"}


def test_what_cannot_be_read_is_told_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").mkdir()
    os.mkfifo(tmp_path / "SOUL.md")
    (tmp_path / "TOOLS.md").write_bytes(b"\xef\xbb\xbfcaf\xe9\r\nok")
    with (tmp_path / "USER.md").open("wb") as file:
        file.truncate(17_000_000)
    (tmp_path / "HEARTBEAT.md").write_text(" \n")
    workspace = loaded(tmp_path)
    assert [(file.name, file.text) for file in workspace.files] == [("TOOLS.md", "caf\ufffd\nok")]
    assert [note.split(":")[0] for note in workspace.notes] == [
        "AGENTS.md is left out",
        "SOUL.md is left out",
        "USER.md is left out",
    ]
    assert "could not be read" in loaded(tmp_path / "nowhere").notes[0]


def test_missing_files_are_created_once_and_never_over_others(tmp_path: Path) -> None:
    assert not (tmp_path / "w").exists()
    created = create_missing_files(tmp_path / "w")
    assert "BOOTSTRAP.md" in created.names
    assert len(created.names) == 7
    assert names(loaded(tmp_path / "w", first_run=True)) == list(created.names)
    (tmp_path / "w" / "SOUL.md").write_text("mine")
    (tmp_path / "w" / "USER.md").unlink()
    (tmp_path / "w" / "BOOTSTRAP.md").unlink()
    assert create_missing_files(tmp_path / "w").names == ("USER.md",)
    assert (tmp_path / "w" / "SOUL.md").read_text() == "mine"


def test_nothing_is_created_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "SOUL.md").symlink_to(tmp_path / "elsewhere.md")
    create_missing_files(tmp_path / "w")
    assert not (tmp_path / "elsewhere.md").exists()


RULES = """# Agents
intro
## session STARTUP
Read the notes.
### Details
Really.
## Style
Be brief.
#### **Red Lines**:
- Never push to main.
```
# not a heading
```
- Ask first.
# Other
no
"""


def test_the_two_sections_with_all_below_them() -> None:
    assert critical_rules(RULES) == (
        "## session STARTUP\nRead the notes.\n### Details\nReally.\n\n"
        "#### **Red Lines**:\n- Never push to main.\n```\n# not a heading\n```\n- Ask first."
    )


@given(st.text("#ab \n`*RedLinesSesionStartup"), st.integers(0, 60))
def test_rules_keep_to_the_limit_whatever_the_file(text: str, limit: int) -> None:
    whole = f"{text}\n# Red Lines\n{text}\n## Session Startup\n{text}"
    assert len(critical_rules(whole, limit)) <= limit
