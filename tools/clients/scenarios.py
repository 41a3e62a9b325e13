"""What each agent is put through, and what must hold afterwards.

A scenario gives the faults that it found; none is what is wanted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from tools.clients.agents import (
    AgentHome,
    ClaudeCode,
    Codex,
    OpenCode,
    Pi,
    PiChat,
    PiResponses,
    until,
)
from tools.clients.checks import (
    by_session,
    keys_in_files,
    misshapen,
    shaped_count,
    side_requests_kept,
    unanswered,
    unlike,
    words_where,
)
from tools.clients.hop import Crossing
from tools.clients.lab import Lab, Stage, staged
from tools.clients.mcp import claude_with_mcp
from tools.clients.openclaw import openclaw
from tools.clients.wrapped import CASES, wrapped

Scenario: TypeAlias = Callable[[Lab, Path], Iterator[str]]

CANCEL_SECONDS: Final = 1.0
"""The provider learns that a client went away within this."""


def transparent(stage: Stage) -> Iterator[str]:
    """Nothing had to be shaped: both sides are the same."""
    yield from unlike(stage)
    yield from unanswered(stage)
    yield from (f"refused: {rule}" for rule in stage.provider.refused)


def cancelled(stage: Stage, home: AgentHome) -> Iterator[str]:
    """An agent stopped in mid-stream: the provider sees it, and soon."""
    begun = threading.Event()

    def watch() -> None:
        until(lambda: any(c.replied for c in _hanging(stage)), seconds=60)
        time.sleep(0.3)
        begun.set()

    threading.Thread(target=watch, daemon=True).start()
    home.ask("please HANG now", interrupt=begun)
    until(lambda: _left(_hanging(stage)), seconds=5)
    left = _left(c for c in stage.before.crossings if b"please HANG now" in c.sent)
    seen = _left(_hanging(stage))
    if not seen or not left:
        yield "cancel: the provider never saw that the client went away"
    elif max(seen) - max(left) > CANCEL_SECONDS:
        yield f"cancel: the provider saw it {max(seen) - max(left):.1f} s later"


def _hanging(stage: Stage) -> list[Crossing]:
    """Connections to the provider that carry the request which hangs."""
    return [c for c in stage.behind.crossings if b"please HANG now" in c.sent]


def _left(crossings: Iterable[Crossing]) -> list[float]:
    return [c.left_at for c in crossings if c.left_at is not None]


def statuses(stage: Stage, words: str) -> list[int | None]:
    """What requests with these words were answered with, in order."""
    return [one.status for one in stage.before.exchanges() if words.encode() in one.body]


def claude(lab: Lab, folder: Path) -> Iterator[str]:
    """Claude Code: tools, subagents, compaction, errors, resume, fork, cancel; nothing shaped."""
    with staged(folder) as stage:
        home = ClaudeCode(lab=lab, folder=folder / "claude", url=stage.url)
        with home.talk() as talk:
            for words in (
                "hello, the first turn",
                "please TOOL:echo one-tool",
                "please TOOLS:echo left && echo right",
                "THINK about the harbour",
                "AGENT:say hello as a subagent",
                "FAIL:529 and then go on",
                "FAIL:500 and then go on",
                "FAIL:429 and then go on",
                "BREAK off in the middle",
                "/compact keep the names",
                "after the compaction",
            ):
                ended = talk.say(words)
                if ended.get("is_error"):
                    yield f"claude: {words!r} ended with {str(ended.get('result'))[:120]}"
            talk.say("FAIL:400 and stop")
            session = str(talk.session)
        home.extra = ("--resume", session)
        home.ask("a turn after resuming")
        home.extra = ("--resume", session, "--fork-session")
        home.ask("a turn after forking")
        home.extra = ()
        yield from cancelled(stage, home)
        for status in (529, 500, 429, 400):
            if status not in statuses(stage, f"FAIL:{status}"):
                yield f"claude: the provider's {status} did not come through"
        yield from transparent(stage)
        yield from _claude_kept(stage, session)
        yield from keys_in_files(stage)


def _claude_kept(stage: Stage, session: str) -> Iterator[str]:
    stored = stage.stored()
    sessions = by_session(stored)
    yield from side_requests_kept(stored)
    main = session
    expected = {
        "hello, the first turn": [main],
        "after the compaction": [main],
        "a turn after resuming": [main],
    }
    for words, names in expected.items():
        found = [name for name in words_where(sessions, words) if "/" not in name]
        if main not in found:
            yield f"claude: {words!r} is kept in {found}, not in {names}"
    subagents = [name for name in sessions if name.startswith(f"{main}/")]
    if not subagents:
        yield "claude: the subagent has no session of its own"
    if any(name == main for name in words_where(sessions, "a turn after forking")):
        yield "claude: the fork is kept in the session it was forked from"


def one_shot(kind: type[AgentHome], *, name: str, names_sessions: bool = False) -> Scenario:
    """An agent that is started for each question: tools, errors, resume, fork, its own compaction,
    cancel; nothing shaped. `names_sessions`: whether it tells which session a request is of.
    """

    def run(lab: Lab, folder: Path) -> Iterator[str]:
        with staged(folder) as stage:
            home = kind(lab=lab, folder=folder / name, url=stage.url)
            for at, words in enumerate(_TURNS):
                ran = home.ask(words, resume=at > 0)
                if ran.status:
                    yield f"{name}: {words!r} ended with {ran.status}: {ran.output[-200:]}"
            ran = home.fork("a turn after forking")
            if ran.status:
                yield f"{name}: the fork ended with {ran.status}: {ran.output[-200:]}"
            for words in ("FAIL:529 and go on", "FAIL:400 and stop", "BREAK off in the middle"):
                home.ask(words)
            for status in (529, 400):
                if status not in statuses(stage, f"FAIL:{status}"):
                    yield f"{name}: the provider's {status} did not come through"
            if not stage.provider.summaries:
                yield f"{name}: it never compacted"
            yield from cancelled(stage, home)
            yield from transparent(stage)
            yield from keys_in_files(stage)
            yield from _one_shot_kept(stage, name, names_sessions=names_sessions)

    return run


_TURNS: Final = (
    "hello, the first turn",
    "please TOOLS:echo left && echo right",
    "please TOOL:echo again",
    "a long one, USED:97000",
    "a turn after compacting",
)


def _one_shot_kept(stage: Stage, name: str, *, names_sessions: bool) -> Iterator[str]:
    stored = stage.stored()
    yield from side_requests_kept(stored)
    sessions = by_session(stored)
    first, again, compacted, forked = (
        words_where(sessions, words)
        for words in (_TURNS[0], "TOOL:echo again", _TURNS[-1], "a turn after forking")
    )
    main = first[:1]
    if again[:1] != main:
        yield f"{name}: first turn in {first}, resumed one in {again}"
    if not names_sessions:
        return  # a fork, and a history that was compacted, cannot be told from others by words
    if not main or ":" in main[0]:
        yield f"{name}: the session is {first}, not called as {name} calls it"
    if compacted[:1] != main:
        yield f"{name}: the turn after compacting is in {compacted}, not in {main}"
    if not forked or forked == main:
        yield f"{name}: the fork is in {forked}, as what it was forked from"


def small_window(kind: type[AgentHome], *, name: str, window: int, turns: int = 8) -> Scenario:
    """An agent whose tool results outgrow the window: what is sent stays valid and untouched."""

    def run(lab: Lab, folder: Path) -> Iterator[str]:
        server = {"window_tokens": window}
        with staged(folder, server=server, window_tokens=window) as stage:
            home = kind(lab=lab, folder=folder / name, url=stage.url)
            for at in range(turns):
                lines = [f"line {line} of file {at}: value {line * 7 + at}" for line in range(60)]
                (home.project / f"notes{at}.txt").write_text("\n".join(lines), encoding="utf-8")
            for at, ended in enumerate(_turns(home, turns)):
                if ended:
                    yield f"{name}: turn {at} of the small window failed: {ended}"
            yield from misshapen(stage)
            yield from unanswered(stage)
            yield from (f"refused: {rule}" for rule in stage.provider.refused)
            if not shaped_count(stage):
                yield f"{name}: nothing was shaped at a window of {window:,}"

    return run


def _turns(home: AgentHome, turns: int) -> Iterator[str]:
    """Each turn's fault; empty where it went well."""
    words = [f"THINK and read it: TOOL:cat notes{at}.txt" for at in range(turns)]
    if isinstance(home, ClaudeCode):
        with home.talk() as talk:
            for one in words:
                ended: Mapping[str, Any] = talk.say(one)
                yield str(ended.get("result"))[:160] if ended.get("is_error") else ""
        return
    for at, one in enumerate(words):
        ran = home.ask(one, resume=at > 0)
        yield ran.output[-160:] if ran.status else ""


SCENARIOS: Final[Mapping[str, tuple[str, Scenario]]] = {
    "claude": ("claude", claude),
    "claude-small": ("claude", small_window(ClaudeCode, name="claude", window=18_000)),
    "claude-mcp": ("claude", claude_with_mcp),
    "pi": ("pi", one_shot(Pi, name="pi")),
    "pi-chat": ("pi", one_shot(PiChat, name="pi")),
    "pi-responses": ("pi", one_shot(PiResponses, name="pi", names_sessions=True)),
    "pi-small": ("pi", small_window(Pi, name="pi", window=6_000)),
    "pi-chat-small": ("pi", small_window(PiChat, name="pi", window=6_000)),
    "pi-responses-small": ("pi", small_window(PiResponses, name="pi", window=6_000)),
    "codex": ("codex", one_shot(Codex, name="codex", names_sessions=True)),
    "codex-small": ("codex", small_window(Codex, name="codex", window=18_000)),
    "opencode": ("opencode", one_shot(OpenCode, name="opencode", names_sessions=True)),
    "opencode-small": ("opencode", small_window(OpenCode, name="opencode", window=14_000)),
    "openclaw": ("openclaw", openclaw),
    **{f"wrap-{name}": (name, wrapped(name)) for name in CASES},
}
"""By name: the agent that it needs, and the scenario."""
