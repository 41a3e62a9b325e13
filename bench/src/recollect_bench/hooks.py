"""`recollect bench hooks`: what an agent waits for its hooks, with the daemon and without.

Real processes on this machine, over a memory of 20,000 passages with the vectors of the embedder
that the settings choose. Sessions of a coding agent begin and go on for forty turns, and every
prompt asks for something that memory holds, which is the dearest case. Prompts go to the daemon
over HTTP, as Claude Code asks it, and by command, as Codex does, one after the other with a pause;
beside them a Python that does nothing is started, for no command can be faster than that. Cold
starts are whole commands that find no daemon; `alone` are processes that answer without one.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from recollect.errors import RecollectError
from recollect.hosts.daemon.client import ask
from recollect_bench.gateway.measure import quantile
from recollect_bench.gateway.traffic import CodingTalk, fill_memory
from recollect_bench.result import BenchResult
from recollect_bench.turn_recall_data import Talk

Progress: TypeAlias = Callable[[str], None]

PASSAGES: Final = 20_000
PROMPTS: Final = 200
COLD_STARTS: Final = 10
AT_ONCE: Final = 200
TURNS: Final = 40
"""Of a session; each is four messages. Then the next one begins."""
PAUSE_SECONDS: Final = 0.4
"""Between two prompts, in which what was said is kept; people and models take far longer."""
_ALONE: Final = """
import os, sys
from recollect.hosts.daemon.alone import answer_alone
answer_alone("claude-code", sys.stdin.buffer.read(), sys.stdout.buffer.write, os.devnull)
"""
NOTES: Final = (
    "milliseconds of wall clock from asking to the whole answer; p95: 95 of 100 are not above it",
    "_processor: median of the milliseconds of processor time of all its processes",
    "socket: a prompt's hook over a new connection; command: `recollect hook`, the process started",
    "  and ended; python: a Python that is started and does nothing",
    "cold: the command that starts the daemon, and is answered by it; alone: without a daemon",
    "at_once: hooks over HTTP in the same moment, from the first asked to the last answered",
    "told: share of the prompts that were told something",
)


@dataclass(slots=True)
class Timed:
    """How long each of some hooks took, and how many were told something."""

    milliseconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Of the processes that ended meanwhile: what else the machine does is not in it."""
    told: int = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Time what runs in the block."""
        used = _processor_seconds()
        began = time.perf_counter()
        yield
        self.milliseconds.append((time.perf_counter() - began) * 1_000)
        self.processor.append((_processor_seconds() - used) * 1_000)

    def figures(self, name: str) -> dict[str, float]:
        """Median and 95th percentile."""
        return {
            f"{name}_p50": quantile(self.milliseconds, 0.5),
            f"{name}_p95": quantile(self.milliseconds, 0.95),
            **({f"{name}_processor": median(self.processor)} if median(self.processor) else {}),
        }


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Session:
    """A session of Claude Code in a folder, as its hooks tell of it."""

    def __init__(self, folder: Path, *, turns: int) -> None:
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self._id = str(uuid.uuid4())
        self._path = folder / f"{self._id}.jsonl"
        self._talk = CodingTalk(7)
        self._last: str | None = None
        for _ in range(turns):
            self.goes_on(self._talk.said(18)["content"])

    def goes_on(self, prompt: str) -> None:
        """The agent has answered a prompt, with a tool's help."""
        talk = self._talk
        said = {"role": "user", "content": prompt}
        with self._path.open("a", encoding="utf-8") as file:
            for message in (said, talk.called(), talk.answered(200), talk.done()):
                own = str(uuid.uuid4())
                line = {
                    "parentUuid": self._last,
                    "isSidechain": False,
                    "sessionId": self._id,
                    "version": "2.1.325",
                    "uuid": own,
                    "timestamp": "2026-11-17T01:00:00.000Z",
                    "type": message["role"],
                    "message": message,
                }
                file.write(json.dumps(line) + "\n")
                self._last = own

    def event(self, name: str, **fields: Any) -> bytes:
        """A hook's event."""
        return json.dumps(
            {
                "session_id": self._id,
                "transcript_path": str(self._path),
                "cwd": str(self.project),
                "hook_event_name": name,
                **fields,
            }
        ).encode()


class HooksLab:
    """A data folder of its own, and the processes that work on it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.environment = {
            **os.environ,
            "RECOLLECT_HOME": str(self.home),
            "PYTHONPYCACHEPREFIX": str(folder / "compiled"),
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled

    def run(self, *words: str, given: bytes = b"") -> bytes:
        """What a Python with these arguments prints."""
        done = subprocess.run(  # noqa: S603 - commands of ours
            [sys.executable, *words], input=given, env=self.environment, capture_output=True,
            timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RecollectError(f"{' '.join(words[:4])} failed: {done.stderr.decode()[-300:]}")
        return done.stdout

    def hook(self, event: bytes) -> bytes:
        """A command hook, whole."""
        return self.run("-m", "recollect", "hook", "claude-code", given=event)

    def stop(self) -> None:
        """End the daemon."""
        self.run("-m", "recollect", "daemon", "stop")

    def processor_seconds(self) -> float:
        """Processor time of the daemon; 0 where the system does not tell."""
        pid = int((self.home / "daemon" / "lock").read_text())
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        except OSError:
            return 0.0
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def asked(self, event: bytes) -> bytes:
        """A hook over the daemon's socket, without a process of its own."""
        os.environ["RECOLLECT_HOME"] = str(self.home)
        reply = ask("POST", "/hooks/claude-code", event, seconds=60.0)
        if reply.status != 200:
            raise RecollectError(f"the daemon answered with status {reply.status}")
        return reply.body


def run(progress: Progress, *, quick: bool = False) -> BenchResult:
    """Measure; `quick` to see that it runs."""
    passages, prompts = (400, 10) if quick else (PASSAGES, PROMPTS)
    cold_starts, at_once = (2, 20) if quick else (COLD_STARTS, AT_ONCE)
    with TemporaryDirectory() as name:
        folder = Path(name)
        lab = HooksLab(folder)
        session = Session(folder, turns=6 if quick else TURNS)
        asyncio.run(fill_memory(lab.home, passages, progress, space=str(session.project)))
        questions = questions_to(passages, prompts)
        progress("alone")
        alone = Timed()
        lab.run("-c", _ALONE, given=session.event("UserPromptSubmit", prompt=questions[0]))
        lab.hook(session.event("UserPromptSubmit", prompt=questions[0]))
        lab.stop()
        for question in questions[:cold_starts]:
            event = session.event("UserPromptSubmit", prompt=question)
            with alone.one():
                lab.run("-c", _ALONE, given=event)
        cold = Timed()
        for number, question in enumerate(questions[:cold_starts]):
            progress(f"cold starts: {number + 1}")
            if number:
                lab.stop()
            with cold.one():
                lab.hook(session.event("UserPromptSubmit", prompt=question))
            cold.processor[-1] += lab.processor_seconds() * 1_000
        figures = _warm(lab, folder, questions, progress)
        progress(f"{at_once} at once")
        began = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            events = [
                session.event("UserPromptSubmit", prompt=questions[number % len(questions)])
                for number in range(at_once)
            ]
            answered = sum(1 for _ in pool.map(lab.asked, events))
        took = time.perf_counter() - began
        lab.stop()
    return BenchResult(
        bench="hooks",
        figures={
            "passages": passages,
            **figures,
            **cold.figures("cold"),
            "cold_most": max(cold.milliseconds),
            **alone.figures("alone"),
            "at_once": answered,
            "at_once_seconds": took,
        },
        notes=NOTES,
    )


def _warm(
    lab: HooksLab, folder: Path, questions: Sequence[str], progress: Progress
) -> dict[str, float]:
    """Prompts to a daemon that runs: each way in turn, so that the machine's load hits all."""
    asked, command, python = Timed(), Timed(), Timed()
    session = Session(folder, turns=0)
    lab.asked(session.event("UserPromptSubmit", prompt=questions[0]))
    for number, question in enumerate(questions):
        if 2 * number % TURNS == 0:
            progress(f"prompts: {number} of {len(questions)}")
            session = Session(folder, turns=0)
        event = session.event("UserPromptSubmit", prompt=question)
        with asked.one():
            answer = lab.asked(event)
        asked.told += bool(answer)
        session.goes_on(question)
        time.sleep(PAUSE_SECONDS)
        again = f"{question} Say it again."
        with command.one():
            lab.hook(session.event("UserPromptSubmit", prompt=again))
        session.goes_on(again)
        time.sleep(PAUSE_SECONDS)
        with python.one():
            lab.run("-c", "pass")
    return {
        **asked.figures("socket"),
        **command.figures("command"),
        **python.figures("python"),
        "told": asked.told / len(questions),
    }


def questions_to(passages: int, count: int) -> list[str]:
    """Questions on what a memory of so many passages holds."""
    talk = Talk()
    messages = max(number for number, _ in talk.batches(passages))
    return [asked.request.query for asked in talk.asked(messages, count, gated=False)]
