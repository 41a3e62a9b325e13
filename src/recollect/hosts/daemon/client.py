"""The client that hooks run: sends requests to the daemon's socket, and starts the daemon if
necessary. An agent waits for every hook, so this module imports almost nothing while the daemon
answers. A hook prints at most an answer, and exits with 0. Without a daemon, a child process of the
hook answers, and stores messages even if that takes longer than an agent waits."""

from __future__ import annotations

import os
import socket
import stat
import sys
import time

import recollect
from recollect.system.data_folder import data_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from recollect.hosts.hooks.transcript_file import AgentName

AGENTS: dict[str, AgentName] = {"claude-code": "claude-code", "codex": "codex"}
MOST_BYTES = 16_000_000  # not measured; bounds what a hook reads
HOOK_SECONDS = 4.0
"""The daemon's time limit for an answer. A late answer is empty, but the work is finished."""
WAIT_SECONDS = 8.0
"""Time that a hook waits for a daemon which may just have been started."""
START_SECONDS = 5.0  # not measured; agents wait for it
REPLACE_SECONDS = 1.0
"""Time that a hook waits for the daemon of a newer version to start."""
ALONE_SECONDS = 6.0
"""Time that a hook without a daemon waits for its answer, and until all messages are stored."""
HUNG_SECONDS = 60.0
"""A daemon that does not answer counts as hung if it has been running longer than this."""
INPUT_SECONDS = 10.0  # not measured; agents send their input at once
PAUSE_SECONDS = 0.005  # not measured; agents wait for the answer
MOST_LOG_BYTES = 1_000_000  # not measured; bounds the disk
_PATH_BYTES = 100
"""Length limit of a socket's path. Linux allows 108 bytes, macOS 104."""


class DaemonAway(OSError):  # noqa: N818 - as the other errors of ours
    """Raised if no daemon answers, and none could be started."""


def daemon_folder() -> str:
    """Return the folder of the daemon's lock, socket and log, which only the user can read."""
    folder = os.path.join(data_folder(), "daemon")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def socket_path() -> str:
    """Return the path of the daemon's socket: next to its lock, or in a private folder."""
    path = os.path.join(daemon_folder(), "daemon.sock")
    if len(os.fsencode(path)) <= _PATH_BYTES:
        return path
    import hashlib

    name = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    above = os.environ.get("XDG_RUNTIME_DIR") or ""
    if not above or len(os.fsencode(above)) > _PATH_BYTES - 60:
        above = "/tmp"  # noqa: S108 - whose the folder in it is, is looked at
    folder = os.path.join(above, f"recollect-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o077:
        raise DaemonAway(f"{folder} is not a folder of this user alone: remove it")
    return os.path.join(folder, f"{name}.sock")


class DaemonReply:
    """The daemon's answer to a request."""

    __slots__ = ("body", "status", "version")

    def __init__(self, status: int, version: str, body: bytes) -> None:
        self.status: int = status
        self.version: str = version
        self.body: bytes = body


def ask(method: str, path: str, body: bytes = b"", *, seconds: float = WAIT_SECONDS) -> DaemonReply:
    """Send a request to the running daemon. Raise OSError if no answer arrives in time."""
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connect(connection, until)
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        parts: list[bytes] = []
        while True:
            connection.settimeout(max(0.001, until - time.monotonic()))
            part = connection.recv(262_144)
            if not part:
                return _read(b"".join(parts))
            parts.append(part)


def connect(connection: socket.socket, until: float) -> None:
    """Connect to the daemon. Raise OSError if no daemon listens."""
    path = socket_path()
    while True:
        connection.settimeout(max(0.001, until - time.monotonic()))
        try:
            connection.connect(path)
        except BlockingIOError:  # the system's queue of connections is full
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _read(raw: bytes) -> DaemonReply:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    status = first.split(" ")[1:2]
    if not status or not status[0].isdigit() or fields.get("content-length") != str(len(body)):
        raise ConnectionResetError("the daemon closed the connection")
    return DaemonReply(int(status[0]), fields.get("x-recollect-version", ""), body)


def ensure_daemon(*, seconds: float = START_SECONDS) -> None:
    """Start the daemon if none listens, once for all callers. Raise `DaemonAway` if none starts."""
    import fcntl

    until = time.monotonic() + seconds
    lock = os.open(
        os.path.join(daemon_folder(), "start.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        while not listens():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise DaemonAway(
                        "another process is starting a daemon, but no daemon listens yet"
                    ) from None
                time.sleep(PAUSE_SECONDS)
                continue
            if not listens():
                _start(until - time.monotonic())
            return
    finally:
        os.close(lock)


def listens() -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connect(connection, time.monotonic() + 0.5)
        except OSError:
            return False
        return True


def _start(seconds: float) -> None:
    import subprocess

    log = os.open(log_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "recollect", "daemon", "run", "--detach"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=daemon_folder(),
            start_new_session=True,
        )
    finally:
        os.close(log)
    try:
        code = process.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        raise DaemonAway(f"the daemon did not start in time: see {log_path()}") from None
    if code:
        raise DaemonAway(f"the daemon did not start: see {log_path()}")


def replace_daemon() -> None:
    """Stop the daemon of an older version, and start this version's."""
    ask("POST", "/stop", seconds=1.0)  # the old daemon stops listening, then answers
    ensure_daemon(seconds=REPLACE_SECONDS)


def end_hung() -> None:
    """Kill a daemon that answers no request, unless it has just started."""
    if time.time() - os.stat(socket_path()).st_mtime < HUNG_SECONDS:
        return
    try:
        ask("GET", "/health", seconds=2.0)
    except TimeoutError:
        with open(lock_path(), "rb") as file:
            pid = file.read(20).strip()
        if pid.isdigit():
            import signal

            note(f"the daemon (process {int(pid)}) does not answer and is stopped")
            os.kill(int(pid), signal.SIGKILL)


def lock_path() -> str:
    """Return the path of the daemon's lock file, which contains its process id."""
    return os.path.join(daemon_folder(), "lock")


def log_path() -> str:
    """Return the path of the log of the daemon, and of hooks that run without a daemon."""
    return os.path.join(daemon_folder(), "daemon.log")


def note(text: str) -> None:
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    line = f"{stamp} {os.getpid()} hook: {text}\n"
    descriptor = os.open(log_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < 2 * MOST_LOG_BYTES:
            os.write(descriptor, line.encode("utf-8", "replace"))
    finally:
        os.close(descriptor)


def main() -> None:
    """Run `recollect-hook AGENT`. Agents' settings contain this command: never rename it."""
    agent = AGENTS.get(sys.argv[1]) if len(sys.argv) == 2 else None
    if agent is None:
        sys.exit(f"usage: recollect-hook {'|'.join(AGENTS)}, with the hook's event as input")
    run_hook(agent)
    os._exit(0)  # skip Python's shutdown, which takes time


def run_hook(agent: AgentName) -> None:
    """Answer one hook: read the event from standard input, write the answer to standard output."""
    # An agent would read the output of a library as the answer.
    output = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    _guard(agent, lambda: _answer(agent, output))
    os.close(output)


def _guard(agent: AgentName, work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the boundary of a hook; the engine's loads for long
        why = f"{agent} was not answered: {_describe_error(error)}"
        try:
            note(why)
        except Exception as unwritten:  # noqa: BLE001 - RECOLLECT_HOME names no folder of the user
            os.write(2, f"recollect: {why}: {unwritten}\n".encode("utf-8", "replace"))


def is_older(version: str) -> bool:
    """Return True if this version must replace a daemon of the given version."""
    return bool(version) and _age(version) < _age(version_on_disk())


def version_on_disk() -> str:
    """Return the version and the time of its installation, because builds of a checkout share a
    version. An installer writes every file again, so the time of one file is enough."""
    try:
        installed_at = os.stat(recollect.__file__).st_mtime_ns
    except OSError:
        installed_at = 0
    return f"{recollect.__version__}+{installed_at}"


def _age(version: str) -> tuple[list[int], bool, str, int]:
    """Return a sort key for versions. A daemon replaces only an older daemon; otherwise two
    installed versions would replace each other forever."""
    version, _, installed_at = version.partition("+")
    parts = version.split(".")
    numbers = [int(part) for part in parts if part.isdigit()]
    build_time = int(installed_at) if installed_at.isdigit() else 0
    return numbers, len(numbers) == len(parts), version, build_time


def _try(work: Callable[[], None]) -> None:
    try:  # noqa: SIM105 - contextlib takes longer to import
        work()
    except OSError:
        pass


def _describe_error(error: BaseException) -> str:
    is_shown = isinstance(error, OSError | ValueError)
    return f"{type(error).__name__}: {error}" if is_shown else type(error).__name__


def _answer(agent: AgentName, output: int) -> None:
    payload = _input()
    why = ""
    for _ in range(
        2
    ):  # ask again: the daemon may just have ended, and messages are stored only once
        try:
            reply = _ask_daemon(agent, payload)
        except TimeoutError as error:
            why = _describe_error(error)
            _try(end_hung)
            break
        except DaemonAway as error:
            why = _describe_error(error)
            break
        except OSError as error:
            why = _describe_error(error)
        else:
            _print(output, reply.body if reply.status == 200 else b"")
            if is_older(reply.version):
                _try(replace_daemon)
            return
    _try(lambda: note(f"{agent} is answered without the daemon: {why}"))
    _print(output, _answer_alone(agent, payload, output))


def _answer_alone(agent: AgentName, payload: bytes, output: int) -> bytes:
    """Answer in a child process, which goes on storing messages after the agent has its answer."""
    pipe, answer = os.pipe()
    if os.fork():
        os.close(answer)
        return _read_answer(agent, pipe)

    def send(body: bytes) -> None:
        if body != b"{}":  # else the agent waits until the messages are stored, if that is soon
            _try(lambda: _print(answer, body))  # the agent may have stopped waiting
            os.close(answer)

    def work() -> None:
        from recollect.hosts.daemon.alone import answer_alone

        answer_alone(agent, payload, send, os.path.join(daemon_folder(), "alone.lock"))

    try:
        os.close(output)
        os.close(pipe)  # a write fails if the agent stops reading
        _guard(agent, _leave_agent)
        _guard(agent, work)
    finally:
        os._exit(0)


def _leave_agent() -> None:
    """Let the agent neither wait for this process nor end it with its own process group."""
    os.setsid()
    log = os.open(log_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(1, 0)
    os.dup2(log, 2)


def _read_answer(agent: AgentName, pipe: int) -> bytes:
    import select

    parts: list[bytes] = []
    until = time.monotonic() + ALONE_SECONDS
    while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(pipe, 262_144)
        if not part:
            return b"".join(parts)
        parts.append(part)
    note(
        f"{agent} is still being answered after {ALONE_SECONDS:g} s: a process in the background "
        "stores the messages"
    )
    return b""


def _ask_daemon(agent: AgentName, payload: bytes) -> DaemonReply:
    try:
        return ask("POST", f"/hooks/{agent}", payload)
    except (FileNotFoundError, ConnectionRefusedError):
        ensure_daemon()
        return ask("POST", f"/hooks/{agent}", payload)


def _input() -> bytes:
    import select

    parts: list[bytes] = []
    size = 0
    until = time.monotonic() + INPUT_SECONDS
    while size <= MOST_BYTES:
        ready, _, _ = select.select([0], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise ValueError("standard input has no event")
        part = os.read(0, 262_144)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise ValueError("the event is too large")


def _print(output: int, unwritten: bytes) -> None:
    while unwritten and unwritten != b"{}":
        unwritten = unwritten[os.write(output, unwritten) :]
