"""`just compatibility`: do the agents of today still speak what our readers know?

Installs the newest version of each agent by npm into a folder of its own, runs it headless against
the scripted provider, and looks at all that it sent and wrote: requests, hook calls, transcripts.
Every role, block type, top-level field, beta, hook event, hook field and transcript line that is on
no list is told by name, with the agent, its version and where it was seen. The lists are in
`tools/known_names.py` and beside the readers: teach the reader, or declare the name there.

Exit code 1: something is unknown. 2: nothing is, but an agent could not be installed or did not
run, so nobody knows. 0: every agent was looked at and all of it is known.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from recollect.core.formats import anthropic, openai_chat, openai_responses
from recollect.core.formats.transcripts import PI_ENTRY_TYPES, codex
from recollect.core.values.model import FormatName
from recollect.hosts.hooks.transcript_file import AgentName
from tools.clients.agents import (
    AgentHome,
    ClaudeCode,
    Codex,
    OpenClaw,
    OpenCode,
    Pi,
    PiChat,
    PiResponses,
)
from tools.clients.hop import HttpExchange, RecordingHop
from tools.clients.lab import PACKAGES, Lab, LabError
from tools.clients.provider import ScriptedProvider, as_json, scripted_server
from tools.known_names import (
    BETAS,
    CHAT_BLOCK_TYPES,
    CLAUDE_ATTACHMENT_TYPES,
    CLAUDE_LINE_TYPES,
    CLAUDE_SYSTEM_SUBTYPES,
    CODEX_EVENT_TYPES,
    HOOK_EVENTS,
    PI_BLOCK_TYPES,
    PI_ROLES,
    REQUEST_FIELDS,
    RESPONSES_CONTENT_TYPES,
)

Name: TypeAlias = tuple[str, str, str]
"""What kind of thing it is, what it is called, and where it stood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNames:
    """What one wire's reader declares."""

    roles: Collection[str]
    fields: Collection[str]
    blocks: Collection[str]


WIRE_NAMES: Final[Mapping[FormatName, KnownNames]] = {
    "anthropic": KnownNames(
        roles=anthropic.ROLES,
        fields=REQUEST_FIELDS["anthropic"],
        blocks={row.name for row in anthropic.BLOCK_TYPES},
    ),
    "openai-chat": KnownNames(
        roles=openai_chat.ROLES,
        fields=REQUEST_FIELDS["openai-chat"],
        blocks=CHAT_BLOCK_TYPES,
    ),
    "openai-responses": KnownNames(
        roles=openai_responses.ROLES,
        fields=REQUEST_FIELDS["openai-responses"],
        blocks={row.name for row in openai_responses.BLOCK_TYPES} | RESPONSES_CONTENT_TYPES,
    ),
}
_PATHS: Final[Mapping[str, FormatName]] = {
    "/messages": "anthropic",
    "/messages/count_tokens": "anthropic",
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
}


# What is unknown


def unknown_in_request(exchange: HttpExchange) -> Iterator[Name]:
    """Roles, blocks, fields and betas of a request that no list has."""
    format_name = next(
        (name for path, name in _PATHS.items() if exchange.path.endswith(path)), None
    )
    body = as_json(exchange.body)
    if format_name is None or not isinstance(body, dict):
        return
    known = WIRE_NAMES[format_name]
    where = f"{exchange.method} {exchange.path}"
    for name in body.keys() - known.fields:
        yield "request field", name, where
    for beta in exchange.headers.get("anthropic-beta", "").split(","):
        if beta.strip() and not beta.strip().startswith(BETAS):
            yield "beta", beta.strip(), where
    for at, message in enumerate(_objects(body.get("messages") or body.get("input"))):
        yield from _unknown_in_message(message, known, f"{where} message {at}")


def _unknown_in_message(
    message: Mapping[str, Any], known: KnownNames, where: str
) -> Iterator[Name]:
    role = message.get("role")
    if role is not None and role not in known.roles:
        yield "role", str(role), where
    kind = message.get("type")
    if kind is not None and kind not in known.blocks:
        yield "item type", str(kind), where
    for block in _objects(message.get("content")):
        if block.get("type") not in known.blocks:
            yield "block type", str(block.get("type")), where


def unknown_in_hook(agent: AgentName, payload: Mapping[str, Any]) -> Iterator[Name]:
    """An event, or fields of one, that no list has."""
    event = str(payload.get("hook_event_name"))
    known = HOOK_EVENTS[agent]
    if event not in known:
        yield "hook event", event, "standard input of a hook"
        return
    for name in payload.keys() - known[event]:
        yield "hook field", name, f"{event} hook"


def unknown_events(agent: AgentName, program: bytes) -> Iterator[Name]:
    """Hook events that a program declares and no list has: only what is asked for is called."""
    for name in sorted(set(_DECLARED_EVENTS[agent].findall(program))):
        if name.decode() not in HOOK_EVENTS[agent]:
            yield "hook event", name.decode(), "its program"


_DECLARED_EVENTS: Final[Mapping[AgentName, re.Pattern[bytes]]] = {
    "claude-code": re.compile(rb'hook_event_name:[\w$.]+\("([A-Z]\w+)"\)'),
    "codex": re.compile(rb'"hook_event_name": \{\s*"const": "([A-Z]\w+)"'),
}
"""How a program's own schemas of hooks name their events."""


def unknown_in_claude_code(data: bytes) -> Iterator[Name]:
    """Lines, attachments and system lines of a transcript that no list has."""
    for number, line in _lines(data):
        where = f"transcript line {number}"
        kind = line.get("type")
        if kind not in CLAUDE_LINE_TYPES:
            yield "transcript line", str(kind), where
        attachment = line.get("attachment")
        if isinstance(attachment, dict) and attachment.get("type") not in CLAUDE_ATTACHMENT_TYPES:
            yield "attachment", str(attachment.get("type")), where
        if kind == "system" and line.get("subtype") not in CLAUDE_SYSTEM_SUBTYPES:
            yield "system line", str(line.get("subtype")), where
        message = line.get("message")
        if kind in ("user", "assistant") and isinstance(message, dict):
            yield from _unknown_in_message(
                {key: message.get(key) for key in ("role", "content")},
                WIRE_NAMES["anthropic"],
                where,
            )


def unknown_in_codex(data: bytes) -> Iterator[Name]:
    """Lines, events and items of a rollout that no list has."""
    for number, line in _lines(data):
        where = f"rollout line {number}"
        kind, payload = line.get("type"), line.get("payload")
        if kind not in codex.LINE_TYPES:
            yield "transcript line", str(kind), where
        if not isinstance(payload, dict):
            continue
        if kind == "event_msg" and payload.get("type") not in CODEX_EVENT_TYPES:
            yield "event", str(payload.get("type")), where
        if kind == "response_item":
            yield from _unknown_in_message(payload, WIRE_NAMES["openai-responses"], where)


def unknown_in_pi(data: bytes) -> Iterator[Name]:
    """Entries, roles and blocks of a session of pi's or OpenClaw's that no list has."""
    for number, line in _lines(data):
        where = f"session line {number}"
        if line.get("type") not in PI_ENTRY_TYPES:
            yield "transcript line", str(line.get("type")), where
        message = line.get("message")
        if isinstance(message, dict):
            known = KnownNames(roles=PI_ROLES, fields=(), blocks=PI_BLOCK_TYPES)
            yield from _unknown_in_message(
                {key: message.get(key) for key in ("role", "content")}, known, where
            )


def _lines(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        value = as_json(line) if line.strip() else None
        if isinstance(value, dict):
            yield number, value


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# What an agent is put through


@dataclass(slots=True, kw_only=True)
class Checked:
    """One version of an agent, and what was found."""

    agent: str
    version: str = ""
    problem: str = ""
    """Why nobody knows: it could not be installed, or it did not run."""
    requests: int = 0
    hooks: int = 0
    lines: int = 0
    unknown: dict[tuple[str, str], str] = field(default_factory=dict)
    """By kind and name, where it was seen first."""

    def add(self, names: Iterable[Name]) -> None:
        for kind, name, where in names:
            self.unknown.setdefault((kind, name), where)


Visit: TypeAlias = Callable[[Lab, Path, str, Checked], None]


def _visit_claude_code(lab: Lab, folder: Path, url: str, checked: Checked) -> None:
    home = ClaudeCode(lab=lab, folder=folder, url=url)
    log = folder / "hooks.jsonl"
    settings = folder / "settings.json"
    settings.write_text(json.dumps({"hooks": _recording_hooks("claude-code", log)}))
    with home.talk("--autocompact", "100k", "--settings", str(settings)) as talk:
        said = (
            "We use port 8123. THINK",
            "Look around TOOLS:ls && pwd",
            "AGENT:look at the folder",
            "TOOL:exit 3",
            "USED:97000 and on",
            "Bake some bread.",
            "/compact",
            "What did we say?",
        )
        for words in said:
            _must_run(not talk.say(words).get("is_error"), f"{words!r} failed")
    ran = home.ask("And again", resume=True)
    _must_run(ran.status == 0, ran.output)
    _take_hooks("claude-code", log, checked)
    program = lab.program("claude").resolve()
    checked.add(unknown_events("claude-code", program.read_bytes()))
    _take_files(home.home.rglob("projects/*/*.jsonl"), unknown_in_claude_code, checked)


def _visit_codex(lab: Lab, folder: Path, url: str, checked: Checked) -> None:
    home = Codex(lab=lab, folder=folder, url=url, extra=("--dangerously-bypass-hook-trust",))
    log = folder / "hooks.jsonl"
    hooks = json.dumps({"hooks": _recording_hooks("codex", log)})
    (home.home / ".codex" / "hooks.json").write_text(hooks)
    said = ("We use port 8123. TOOL:ls", "TOOL:exit 3", "USED:70000 and on", "What did we say?")
    for at, words in enumerate(said):
        ran = home.ask(words, resume=at > 0)
        _must_run(ran.status == 0, ran.output)
    _take_hooks("codex", log, checked)
    for program in (lab.folder / "codex").rglob("bin/codex"):
        if program.stat().st_size > 1 << 20:
            checked.add(unknown_events("codex", program.read_bytes()))
    _take_files(home.home.rglob("rollout-*.jsonl"), unknown_in_codex, checked)


def _visit_pi(lab: Lab, folder: Path, url: str, checked: Checked) -> None:
    for wire in (Pi, PiChat, PiResponses):
        home = wire(lab=lab, folder=folder / wire.wire, url=url)
        _ask(home, "We use port 8123. TOOL:ls", "USED:99000 and on", "What did we say?")
        _take_files(home.home.rglob("sessions/*/*.jsonl"), unknown_in_pi, checked)


def _visit_opencode(lab: Lab, folder: Path, url: str, checked: Checked) -> None:
    home = OpenCode(lab=lab, folder=folder, url=url)
    _ask(home, "THINK We use port 8123. TOOL:ls", "USED:99000 and on", "What did we say?")


def _visit_openclaw(lab: Lab, folder: Path, url: str, checked: Checked) -> None:
    home = OpenClaw(lab=lab, folder=folder, url=url)
    _ask(home, "We use port 8123. TOOL:ls", "What did we say?")
    (database,) = home.home.rglob("openclaw-agent.sqlite")
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as rows:
        events = rows.execute("SELECT event_json FROM transcript_events ORDER BY seq").fetchall()
    data = "\n".join(text for (text,) in events if text)
    checked.lines += len(events)
    checked.add(unknown_in_pi(data.encode()))


VISITS: Final[Mapping[str, Visit]] = {
    "claude": _visit_claude_code,
    "codex": _visit_codex,
    "pi": _visit_pi,
    "opencode": _visit_opencode,
    "openclaw": _visit_openclaw,
}


def _ask(home: AgentHome, *said: str) -> None:
    for at, words in enumerate(said):
        ran = home.ask(words, resume=at > 0)
        _must_run(ran.status == 0, ran.output)


def _must_run(went_well: bool, output: str) -> None:
    if not went_well:
        raise LabError(f"did not run: {output[-400:]}")


def _recording_hooks(agent: AgentName, log: Path) -> dict[str, Any]:
    """Every known event, written down as it comes, a line each."""
    command = f"{{ tr -d '\\n'; echo; }} >> '{log}'"
    entry = [{"hooks": [{"type": "command", "command": command}]}]
    return dict.fromkeys(HOOK_EVENTS[agent], entry)


def _take_hooks(agent: AgentName, log: Path, checked: Checked) -> None:
    payloads = [payload for _, payload in _lines(log.read_bytes())] if log.exists() else []
    called = {payload.get("hook_event_name") for payload in payloads}
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "PreCompact", "PostCompact"):
        _must_run(event in called, f"its {event} hook was never called")
    checked.hooks += len(payloads)
    for payload in payloads:
        checked.add(unknown_in_hook(agent, payload))


def _take_files(
    paths: Iterable[Path], unknown: Callable[[bytes], Iterable[Name]], checked: Checked
) -> None:
    files = list(paths)
    _must_run(bool(files), "it wrote no transcript")
    for path in files:
        data = path.read_bytes()
        checked.lines += data.count(b"\n")
        checked.add(unknown(data))


# The run


def check(lab: Lab, agent: str, package: str) -> Checked:
    """One version of an agent, installed and run."""
    checked = Checked(agent=agent)
    try:
        lab.install([])  # Node itself
        lab.install_as(agent, package)
        checked.version = lab.version(agent, package)
        provider = ScriptedProvider(refuses=False)
        with (
            tempfile.TemporaryDirectory(prefix="recollect-compatibility-") as folder,
            scripted_server(provider) as server,
            RecordingHop(server.url) as hop,
        ):
            VISITS[agent](lab, Path(folder), hop.url, checked)
            exchanges = hop.exchanges()
        for exchange in exchanges:
            checked.requests += exchange.method == "POST"
            checked.add(unknown_in_request(exchange))
        _must_run(checked.requests > 0, "it sent no request")
    except (LabError, OSError, ValueError, sqlite3.Error, subprocess.SubprocessError) as problem:
        checked.problem = " ".join(str(problem).split()) or type(problem).__name__
    return checked


def checks(lab: Lab, agents: Sequence[str]) -> Iterator[Checked]:
    """The newest of each; where that cannot be installed, also the one our tests run with."""
    for agent in agents:
        pinned = PACKAGES[agent]
        newest = check(lab, agent, f"{pinned.rpartition('@')[0]}@latest")
        yield newest
        if not newest.version:
            yield check(lab, agent, pinned)


def told(checked: Checked) -> str:
    """What a person reads of it."""
    name = f"{checked.agent} {checked.version}".strip()
    if checked.problem:
        head = f"{name}: not checked: {checked.problem}"
    else:
        seen = f"{checked.requests} requests, {checked.hooks} hooks, {checked.lines} lines"
        head = f"{name}: {seen}: {len(checked.unknown) or 'nothing'} unknown"
    lines = [
        f"    unknown {kind} {what!r}, first seen in {where}"
        for (kind, what), where in sorted(checked.unknown.items())
    ]
    return "\n".join([head, *lines])


def main(arguments: Sequence[str]) -> int:
    """Check, print, and answer as the module says."""
    parser = argparse.ArgumentParser(prog="just compatibility", description=__doc__)
    default = Path(tempfile.gettempdir()) / "recollect-newest-agents"
    parser.add_argument("--folder", type=Path, default=default, help="where they are installed")
    parser.add_argument("--only", action="append", choices=tuple(VISITS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    done: list[Checked] = []
    for checked in checks(Lab(folder=options.folder), options.only or tuple(VISITS)):
        done.append(checked)
        if not options.json:
            print(told(checked), flush=True)
    if options.json:
        print(json.dumps([_as_json(checked) for checked in done], indent=2))
    return exit_code(done)


def exit_code(done: Iterable[Checked]) -> int:
    """1: something is unknown; 2: somebody could not be checked; 0: all is known."""
    checked = list(done)
    if any(one.unknown for one in checked):
        return 1
    return 2 if any(one.problem for one in checked) else 0


def _as_json(checked: Checked) -> dict[str, Any]:
    return {
        "agent": checked.agent,
        "version": checked.version,
        "problem": checked.problem,
        "requests": checked.requests,
        "hooks": checked.hooks,
        "lines": checked.lines,
        "unknown": [
            {"kind": kind, "name": name, "where": where}
            for (kind, name), where in sorted(checked.unknown.items())
        ],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
