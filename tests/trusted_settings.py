"""A project's settings file that the user trusts, for tests that are about what it says."""

from pathlib import Path

from recollect.system.config.trust import FILE_NAME, ProjectFile, read_project_file, record_trust


def write_trusted(text: str, folder: Path | str = ".") -> Path:
    """Write a folder's recollect.toml, and trust it as `recollect trust --yes` does."""
    path = Path(folder) / FILE_NAME
    path.write_text(text)
    found = read_project_file(path.parent)
    assert isinstance(found, ProjectFile), found
    record_trust(found)
    return path
