"""Decides what a project's recollect.toml may set, and records the files that the user trusts.

The file may come from a stranger: a cloned repository, an agent, another user. The file may set the
values that `ProjectRule` allows. Other values apply only after `recollect trust` has recorded a
hash of the file's path and content. Each file is read once, so that the hashed bytes are the parsed
bytes. Links, pipes and huge files are not read. A record is valid only if the user owns it and no
other user can write it."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from recollect.errors import SettingsError
from recollect.system.config.keys import GivenValue, setting_keys
from recollect.system.durable import read_plain, replace_file
from recollect.system.places import trust_folder, user_settings_file

FILE_NAME: Final = "recollect.toml"
MOST_BYTES: Final = 64 * 1024
"""Maximum bytes of a project's file. A file with all keys and comments needs a third of this."""
MOST_LINE_BYTES: Final = 2_000
"""Maximum bytes of a line. Python's parser needs 17 s for a key of 30,000 parts on one line."""
_MOST_RECORD_BYTES: Final = 64 * 1024  # a record has one path; bounds what is parsed
_SHOWN_KEYS: Final = 5  # not measured; keeps the notice short
_SHOWN_CHARS: Final = 300  # not measured; a stranger wrote the quoted text
_WRITABLE_BY_OTHERS: Final = 0o022  # group or others


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFile:
    """A recollect.toml in a folder, read once."""

    path: Path
    """Absolute path of the file, without links."""
    data: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        name = os.fsencode(self.path)
        return sha256(b"%d:%s%s" % (len(name), name, self.data)).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadFile:
    """A recollect.toml that exists but was not read, and the reason."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{printable(self.path)} is not read: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """A project's file that the user trusts, and its content when the user decided this."""

    path: Path
    digest: str


def read_project_file(folder: Path) -> ProjectFile | UnreadFile | None:
    """Read a folder's recollect.toml; return None if it is missing, or is the user's own file."""
    path = Path(os.path.realpath(folder)) / FILE_NAME
    if path == Path(os.path.realpath(user_settings_file())):
        return None
    try:
        data, _ = read_plain(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as problem:
        linked = problem.errno in (errno.ELOOP, errno.EMLINK)
        reason = "it is a symbolic link" if linked else problem.strerror or str(problem)
        return UnreadFile(path=path, reason=reason)
    if max(map(len, data.split(b"\n"))) > MOST_LINE_BYTES:
        return UnreadFile(path=path, reason=f"a line has more than {MOST_LINE_BYTES:,} bytes")
    return ProjectFile(path=path, data=data)


def withheld_values(values_by_path: Mapping[str, GivenValue]) -> dict[str, GivenValue]:
    """Return the values in a project's file that only the user may decide."""
    keys = setting_keys()
    return {
        path: given_value
        for path, given_value in values_by_path.items()
        if not keys[path].project.allows(given_value.value)
    }


def notice_text(path: Path, keys: Iterable[str]) -> str:
    """Write the notice about ignored settings of a project's file."""
    ignored_keys = list(keys)
    count_note = (
        f" and {len(ignored_keys) - _SHOWN_KEYS} more" if len(ignored_keys) > _SHOWN_KEYS else ""
    )
    return (
        f"ignored in {printable(path)}: {', '.join(ignored_keys[:_SHOWN_KEYS])}{count_note}. A "
        "file found in a folder may not set this until you allow it: run `recollect trust` there "
        "to review it"
    )


def error_notice(path: Path, problem: SettingsError) -> str:
    """Write the notice about a project's file that is ignored because of an error in it."""
    message = printable(str(problem).replace(str(path), FILE_NAME))
    excerpt = message if len(message) <= _SHOWN_CHARS else f"{message[:_SHOWN_CHARS]}..."
    return f"{printable(path)} is ignored: {excerpt}"


def printable(text: Path | str) -> str:
    """Escape a path or text that the project's author chose, so that it cannot move the cursor."""
    name = str(text)
    return name if name.isprintable() else ascii(name)


def is_trusted(file: ProjectFile) -> bool:
    record = _record_file(file.path)
    if not _is_own_folder(record.parent):
        return False
    stored_record = _read_record(record)
    return stored_record == TrustRecord(path=file.path, digest=file.digest)


def record_trust(file: ProjectFile) -> None:
    """Record that the user trusts this content at this path, in place of an earlier record."""
    record = _record_file(file.path)
    content = json.dumps({"path": str(file.path), "digest": file.digest}).encode()
    try:
        for folder in (record.parent.parent, record.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_own_folder(record.parent):
            raise SettingsError(
                f"{printable(record.parent)} must be a folder that you own and no other user "
                "can write: remove it, and run this again"
            )
        replace_file(record, content)
    except OSError as problem:
        raise SettingsError(
            f"cannot record the trust in {printable(record.parent)}: {problem.strerror or problem}"
        ) from None


def revoke_trust(path: Path) -> bool:
    """Revoke the trust in the file at this path. Return False if the file was not trusted."""
    try:
        _record_file(path).unlink()
    except FileNotFoundError:
        return False
    return True


def trust_records() -> list[TrustRecord]:
    """Return every valid record of trust, sorted by path."""
    folder = trust_folder()
    if not _is_own_folder(folder):
        return []
    optional_records = (_read_record(path) for path in folder.iterdir())
    records = [record for record in optional_records if record is not None]
    return sorted(records, key=lambda record: str(record.path))


def _record_file(path: Path) -> Path:
    """Return the path of the record for a project's file. A file has only one record, so the user
    is asked again even if the file returns to an earlier content."""
    return trust_folder() / sha256(os.fsencode(path)).hexdigest()


def _is_own_folder(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and _is_own(status)


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def _read_record(path: Path) -> TrustRecord | None:
    try:
        data, status = read_plain(
            Path(os.path.realpath(path.parent)) / path.name, _MOST_RECORD_BYTES
        )
        record = json.loads(data) if _is_own(status) else {}
        return TrustRecord(path=Path(record["path"]), digest=str(record["digest"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
