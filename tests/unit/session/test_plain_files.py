"""Files of a project are read without leaving it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recollect.adapters.wiring.memory import critical_rules_of
from recollect.system.durable import read_inside, read_plain

RULES = "# Project\n\n## Red Lines\n\n- Never push to main.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "memory").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.md").write_text(RULES)
    return tmp_path / "project"


def test_a_link_inside_is_followed_and_one_that_leads_out_is_not(project: Path) -> None:
    (project / "memory" / "a.md").write_text("ours")
    (project / "inside.md").symlink_to("memory/a.md")
    assert read_inside(project, "inside.md", 100)[0] == b"ours"
    (project / "up.md").symlink_to("../outside/secret.md")
    (project / "absolute.md").symlink_to(project.parent / "outside" / "secret.md")
    (project / "folder").symlink_to("../outside", target_is_directory=True)
    (project / "chain.md").symlink_to("folder/secret.md")
    (project / "ring.md").symlink_to("ring.md")
    for name in ("up.md", "absolute.md", "folder/secret.md", "chain.md", "ring.md", "none.md"):
        with pytest.raises(OSError):
            read_inside(project, name, 100_000)


def test_a_folder_on_the_way_that_became_a_link_is_not_followed(project: Path) -> None:
    """What was resolved before is opened step by step."""
    path = project / "memory" / "secret.md"
    (project / "memory").rmdir()
    (project / "memory").symlink_to("../outside", target_is_directory=True)
    assert path.read_text() == RULES, "by its name it would be read"
    with pytest.raises(OSError):
        read_plain(path, 100_000)


def test_pipes_and_large_files_are_not_read(project: Path) -> None:
    os.mkfifo(project / "pipe.md")
    with pytest.raises(OSError, match="regular"):
        read_inside(project, "pipe.md", 100)
    (project / "large.md").write_bytes(b"x" * 101)
    with pytest.raises(OSError, match="100 bytes"):
        read_inside(project, "large.md", 100)
    assert len(read_inside(project, "large.md", 101)[0]) == 101


def test_rules_for_summaries_are_the_projects_own(project: Path) -> None:
    (project / "AGENTS.md").write_text(RULES)
    assert "Never push" in critical_rules_of(project)()
    (project / "AGENTS.md").unlink()
    (project / "AGENTS.md").symlink_to("../outside/secret.md")
    assert critical_rules_of(project)() == ""
