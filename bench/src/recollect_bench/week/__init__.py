"""`recollect bench week`: an invented week of work, played through the hooks as installed.

14 sessions of Claude Code on five days, with about 700 messages, tool output, subagents and one
compaction by the host. Every hook is a real process, as the settings file names it, and the daemon
answers it. On the day after, prompts are asked in new sessions: questions about the week, tasks for
which a standing rule of the user holds, prompts about time, tasks of subagents, questions from a
worktree and a clone, and ordinary prompts, which need nothing. Half of all prompts is held out:
constants are tuned on the other half only.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

from recollect.errors import RecollectError
from recollect_bench.data import minilm_folder
from recollect_bench.gateway.measure import quantile
from recollect_bench.result import BenchResult
from recollect_bench.week.agent import PAUSE, AgentLab, HookedSession, ShiftedClock
from recollect_bench.week.story import ASKED_AT, FIRST_DAY, Probe, read_probes, read_story

Progress: TypeAlias = Callable[[str], None]
Half: TypeAlias = Literal["tune", "held-out"]

_EMBEDDERS: Final = {"none": "words", "static": "static", "minilm": "minilm", "onnx": "minilm"}
_NEEDS_MEMORY: Final = ("question", "rule", "time", "folder")
_VECTOR_SECONDS: Final = 300.0
NOTES: Final = (
    "answers, rules, time, folders, subagents: share of the prompts whose text has what they need;",
    "  a rule may be in the text of the session's start, too",
    "rules_gone: share of withdrawn or replaced rules that are given nevertheless",
    "ordinary: share of the prompts that need nothing and get text",
    "chars: characters that a prompt gets, of those that need memory and get any",
    "brief: characters that a session gets at its start",
    "precision: share of these characters that are in a sentence with something needed",
    "hook: milliseconds of wall clock of a prompt's hook",
    "hook_processor: milliseconds of the daemon's processor time per prompt",
)


@dataclass(frozen=True, slots=True)
class Told:
    """What one prompt got, and what its session got at its start."""

    probe: Probe
    brief: str = field(repr=False)
    text: str = field(repr=False)

    @property
    def is_met(self) -> bool:
        """Whether the texts have what the prompt needs."""
        return self.probe.is_met(f"{self.brief}\n{self.text}")


def run(
    progress: Progress,
    *,
    half: Half = "tune",
    embedder: str | None = None,
    quick: bool = False,
    misses: int = 0,
) -> BenchResult:
    """Play the week once per embedder; `quick` plays two sessions and asks little."""
    figures: dict[str, float] = {}
    notes: list[str] = []
    for name in ("none",) if quick and embedder is None else _chosen(embedder):
        label = _EMBEDDERS[name]
        with TemporaryDirectory(prefix="week") as folder:
            told, lab, messages = _play(Path(folder), name, half, progress, quick=quick)
        figures["messages"] = messages
        figures |= {f"{label}_{key}": value for key, value in _figures(told, lab).items()}
        missed = [one for one in told if _is_wrong(one)]
        notes += [f"{label}: {one.probe.kind}: {one.probe.prompt}" for one in missed[:misses]]
        notes += [_shown(one) for one in missed[:misses]]
    return BenchResult(bench="week", figures=figures, notes=(*NOTES, *notes))


def _chosen(embedder: str | None) -> Sequence[str]:
    if embedder is None:
        return ("none", "static", "minilm")
    if embedder not in _EMBEDDERS:
        raise RecollectError(f"bench week has no embedder {embedder}: use none, static or minilm")
    return (embedder,)


def _play(
    folder: Path, embedder: str, half: Half, progress: Progress, *, quick: bool
) -> tuple[list[Told], AgentLab, int]:
    lab = _new_lab(folder, embedder)
    project, worktree, clone = _folders(folder)
    messages = number = 0
    try:
        for sitting in read_story(most=2 if quick else None):
            lab.clock.set(sitting.began_at)
            session = HookedSession(lab, project)
            for place, turn in enumerate(sitting.turns):
                progress(f"{_EMBEDDERS[embedder]}: {sitting.name}, prompt {place + 1}")
                lab.clock.set(sitting.began_at + place * PAUSE)
                number += 1
                session.play(turn, number)
            session.end()
            messages += session.messages
        lab.clock.set(ASKED_AT)
        _wait_for_vectors(lab, project, progress)
        lab.stop_daemon()
        lab.recollect("project", "join", "--yes", cwd=clone)  # as a user accepts the offer
        after_week = folder / "after-week"
        shutil.copytree(lab.data, after_week, ignore=shutil.ignore_patterns("daemon"))
        lab.prompts.milliseconds.clear()
        lab.starts.milliseconds.clear()
        lab.prompt_seconds = 0.0
        probes = _sample(read_probes(half)) if quick else read_probes(half)
        told = []
        for asked, probe in enumerate(probes):
            progress(f"{_EMBEDDERS[embedder]}: {asked + 1} of {len(probes)} prompts")
            lab.clock.set(ASKED_AT)
            cwd = {"folder-worktree": worktree, "folder-clone": clone}.get(probe.kind, project)
            if probe.kind != "time":
                told.append(_ask(lab, probe, cwd))
                continue
            # The last session must be that of the week, not the one of an earlier prompt.
            own = lab.with_data(folder / f"data-{asked}")
            shutil.copytree(after_week, own.data)
            with _daemon(own):
                told.append(_ask(own, probe, cwd))
        return told, lab, messages
    finally:
        lab.stop_daemon()


def _ask(lab: AgentLab, probe: Probe, cwd: Path) -> Told:
    session = HookedSession(lab, cwd)
    if probe.kind == "subagent":
        prompt = session.task(probe.prompt)
        return Told(probe, "", prompt.replace(probe.prompt, ""))
    return Told(probe, session.brief, session.prompt(probe.prompt))


@contextmanager
def _daemon(lab: AgentLab) -> Iterator[None]:
    try:
        yield
    finally:
        lab.stop_daemon()


def _new_lab(folder: Path, embedder: str) -> AgentLab:
    if _EMBEDDERS[embedder] == "minilm":
        minilm_folder()  # fails if the model is missing
        embedder = "onnx"
    clock = ShiftedClock(folder)
    clock.set(FIRST_DAY)
    lab = AgentLab(folder=folder, clock=clock, embedder=embedder, data=folder / "data")
    lab.home.mkdir()
    lab.recollect("install", "claude-code", "--no-download-model")
    return lab


def _folders(folder: Path) -> tuple[Path, Path, Path]:
    """A repository, a worktree of it, and a second clone of the same origin."""
    project, worktree, clone = (folder / name for name in ("gaugewatch", "fix-axis", "second"))
    origin = str(folder / "origin.git")
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (
        ("init", "--quiet", "--bare", origin),
        ("clone", "--quiet", origin, str(project)),
        ("-C", str(project), *identity, "commit", "--quiet", "--allow-empty", "-m", "GW-1 begin"),
        ("-C", str(project), "push", "--quiet", "origin", "HEAD"),
        ("-C", str(project), "worktree", "add", "--quiet", "-b", "fix-axis", str(worktree)),
        ("clone", "--quiet", origin, str(clone)),
    ):
        subprocess.run(["git", *words], check=True, capture_output=True)  # noqa: S603, S607
    return project, worktree, clone


def _wait_for_vectors(lab: AgentLab, project: Path, progress: Progress) -> None:
    if lab.embedder == "none":
        return
    progress("vectors")
    lab.recollect("memory", "reindex", cwd=project)
    until = time.monotonic() + _VECTOR_SECONDS
    while b"embed" in lab.recollect("memory", "jobs", cwd=project):
        if time.monotonic() > until:
            return
        time.sleep(1.0)


def _sample(probes: Sequence[Probe]) -> list[Probe]:
    by_kind: dict[str, list[Probe]] = {}
    for probe in probes:
        by_kind.setdefault(probe.kind, []).append(probe)
    return [probe for kind in by_kind.values() for probe in kind[:2]]


def _is_wrong(told: Told) -> bool:
    if told.probe.kind == "ordinary":
        return bool(told.text)
    return told.is_met == (told.probe.kind == "gone")


def _shown(told: Told) -> str:
    return f"    brief: {told.brief!r}\n    text: {told.text!r}"


def _figures(told: Sequence[Told], lab: AgentLab) -> dict[str, float]:
    def share(kind: str, is_counted: Callable[[Told], bool]) -> float:
        chosen = [one for one in told if one.probe.kind.startswith(kind)]
        return sum(map(is_counted, chosen)) / max(1, len(chosen))

    needed = [one for one in told if one.probe.kind.startswith(_NEEDS_MEMORY)]
    lengths = sorted(len(one.text) for one in needed if one.text) or [0]
    briefs = sorted(len(one.brief) for one in told if one.probe.kind != "subagent")
    answering = sum(one.probe.answering(one.text) for one in needed)
    return {
        "answers": share("question", lambda one: one.is_met),
        "rules": share("rule", lambda one: one.is_met),
        "rules_gone": share("gone", lambda one: one.is_met),
        "time": share("time", lambda one: one.is_met),
        "folders": share("folder", lambda one: one.is_met),
        "subagents": share("subagent", lambda one: one.is_met),
        "ordinary": share("ordinary", lambda one: bool(one.text)),
        "chars_median": median(lengths),
        "chars_p90": quantile(lengths, 0.9),
        "brief_chars": median(briefs),
        "precision": answering / max(1, sum(lengths)),
        "start_p95": quantile(lab.starts.milliseconds, 0.95),
        "hook_p50": quantile(lab.prompts.milliseconds, 0.5),
        "hook_p95": quantile(lab.prompts.milliseconds, 0.95),
        "hook_processor": 1_000 * lab.prompt_seconds / max(1, len(lab.prompts.milliseconds)),
    }
