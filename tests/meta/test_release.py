"""A release states one version everywhere, and its files hold what belongs to them."""

import pytest
from tools.packages.built import ROOT, content_problems, project, wanted
from tools.packages.smoke import USES
from tools.release import (
    ReleaseError,
    check_changelog,
    check_figures,
    example_program,
    version_in,
    with_version,
)

SOURCE = (ROOT / "src/recollect/__init__.py").read_text()


def test_a_version_is_set_in_its_line_alone() -> None:
    changed = with_version(SOURCE, "7.8.9rc1")
    assert version_in(changed) == "7.8.9rc1"
    assert with_version(changed, version_in(SOURCE)) == SOURCE


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3-rc1", '1.2.3"', "1.2.3\n"])
def test_what_is_not_a_version_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match="must be a version"):
        with_version(SOURCE, version)


def test_a_final_version_needs_a_dated_heading() -> None:
    dated, open_ = "# Changelog\n\n## 1.2.3 (2026-11-18)\n", "## 1.2.3 (unreleased)\n"
    check_changelog(dated, "1.2.3")
    check_changelog(open_, "1.2.3rc1")
    check_changelog(open_, "1.2.3.dev0")
    with pytest.raises(ReleaseError, match="write the date"):
        check_changelog(open_, "1.2.3")
    with pytest.raises(ReleaseError, match=r"no heading `## 1\.2\.4`"):
        check_changelog(dated, "1.2.4")


@pytest.mark.parametrize("commits", [{""}, {"1a2b3c4d", ""}, {"1a2b3c4d", "5e6f7a8b"}])
def test_a_final_version_needs_figures_of_one_commit(commits: set[str]) -> None:
    check_figures({"1a2b3c4d"}, "1.2.3")
    check_figures(commits, "1.2.3rc1")
    with pytest.raises(ReleaseError, match="just figures"):
        check_figures(commits, "1.2.3")


def test_the_example_of_the_readme_is_a_program() -> None:
    program = example_program((ROOT / "README.md").read_text())
    compile(program, "README.md", "exec")
    assert "recollect.open_blocking_memory()" in program


def test_files_that_are_missing_or_foreign_are_problems() -> None:
    plugins = {"plugins/a.ts": "recollect/plugins/a.ts"}
    needed = wanted(plugins, "wheel", ["LICENSE"])
    files = dict.fromkeys(needed, b"")
    assert content_problems(files, needed) == []
    assert content_problems({**files, "recollect/tests/test_a.py": b""}, needed)
    assert content_problems({**files, "recollect/sets.json.gz": b""}, needed)
    assert content_problems({**files, "recollect/a.py": b"PLACE = '/home/ada/x'"}, needed)
    del files["recollect/plugins/a.ts"]
    assert content_problems(files, needed) == ["lacks recollect/plugins/a.ts"]
    assert "LICENSE" in wanted(plugins, "sdist", ["LICENSE"])


def test_every_extra_is_used_when_packages_are_tested() -> None:
    assert set(USES) == set(project()["project"]["optional-dependencies"])
