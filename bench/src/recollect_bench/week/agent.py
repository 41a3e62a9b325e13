"""A stand-in for Claude Code: writes its transcripts, and runs the hooks that are in its settings
file as Claude Code runs them. The clock of all processes is set by `ShiftedClock`, so that a week
takes minutes."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from recollect.errors import RecollectError
from recollect_bench.hooks import Timed
from recollect_bench.week.story import Turn
from recollect_bench.week.tool_output import FILES, output_of

_SITE: Final = '''
"""Shifts the clock of each Python process by the seconds in a file."""
import mmap, os, struct, time

with open(os.environ["BENCH_CLOCK"], "rb") as _file:
    _map = mmap.mmap(_file.fileno(), 8, prot=mmap.PROT_READ)
_time = time.time
time.time = lambda: _time() + struct.unpack("d", _map[:8])[0]
'''
_SECONDS: Final = 120
_EXPLORES: Final = 0.66
"""Share of the turns with a further tool call, so that the week has about 700 messages."""
SUMMARY: Final = (
    "This session is being continued from a previous conversation that ran out of context. The "
    "summary below covers it.\n\nThe user works on Gaugewatch. Done so far: {done}.\n\n"
    "Continue the conversation from where it left off."
)


class ShiftedClock:
    """The clock of the lab's processes."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "clock"
        self.site = folder / "site"
        self.site.mkdir()
        (self.site / "sitecustomize.py").write_text(_SITE)
        self.file.write_bytes(struct.pack("d", 0.0))
        self._shift = 0.0

    def set(self, now: datetime) -> None:
        """Set the time of day."""
        self._shift = now.timestamp() - time.time()
        with self.file.open("r+b") as file:
            file.write(struct.pack("d", self._shift))

    def now(self) -> datetime:
        """The shifted time."""
        return datetime.fromtimestamp(time.time() + self._shift, UTC)


@dataclass(slots=True, kw_only=True)
class AgentLab:
    """A user's home folder with Claude Code's settings in it, and the data folder of Recollect."""

    folder: Path
    clock: ShiftedClock
    embedder: str
    data: Path
    prompts: Timed = field(default_factory=Timed)
    starts: Timed = field(default_factory=Timed)
    prompt_seconds: float = 0.0
    """Processor time of the daemon while it answered prompts."""

    @property
    def home(self) -> Path:
        """The user's home folder."""
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        """What every process of the lab gets."""
        others = os.environ.get("PYTHONPATH", "")
        own = {
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
            "RECOLLECT_HOME": str(self.data),
            "RECOLLECT_RECALL__EMBEDDER": self.embedder,
            "BENCH_CLOCK": str(self.clock.file),
            "PYTHONPATH": os.pathsep.join([str(self.clock.site), *filter(None, [others])]),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TZ": "UTC",
        }
        environment = {**os.environ, **own}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment

    def with_data(self, data: Path) -> AgentLab:
        """The same home folder with another data folder."""
        return replace(self, data=data)

    def recollect(self, *words: str, cwd: Path | None = None) -> bytes:
        """Run a command of Recollect, and return what it prints."""
        done = subprocess.run(  # noqa: S603 - commands of ours
            [sys.executable, "-m", "recollect", *words], env=self.environment,
            capture_output=True, timeout=_SECONDS, check=False, cwd=cwd or self.folder,
        )  # fmt: skip
        if done.returncode:
            raise RecollectError(f"{' '.join(words)} failed: {done.stderr.decode()[-300:]}")
        return done.stdout

    def stop_daemon(self) -> None:
        """End the daemon."""
        self.recollect("daemon", "stop")

    def processor_seconds(self) -> float:
        """Processor time of the daemon up to now; 0 if none runs."""
        try:
            pid = int((self.data / "daemon" / "lock").read_text())
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        except (OSError, ValueError):
            return 0.0
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def hooks(self, event: str, tool: str = "") -> list[str]:
        """The commands that the settings name for an event."""
        settings = json.loads((self.home / ".claude" / "settings.json").read_text())
        return [
            hook["command"]
            for entry in settings["hooks"].get(event, ())
            if not tool or re.fullmatch(entry.get("matcher") or ".*", tool)
            for hook in entry["hooks"]
        ]


class HookedSession:
    """A session of the agent in a folder: what it does is written to its transcript, and told to
    the hooks."""

    def __init__(self, lab: AgentLab, cwd: Path, *, source: str = "startup") -> None:
        self.lab = lab
        self.cwd = cwd
        self.id = str(uuid.uuid4())
        name = re.sub(r"[^A-Za-z0-9]", "-", str(cwd))
        self.path = lab.home / ".claude" / "projects" / name / f"{self.id}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.messages = 0
        self._last: str | None = None
        self._done: list[str] = []
        self.brief = self.tell("SessionStart", source=source)

    def tell(self, event: str, tool: str = "", **fields: Any) -> str:
        """Run the hooks of an event, and return the context that they add."""
        output = self.run(event, tool, **fields)
        text = str(output.get("additionalContext") or "")
        if text:
            attachment = {"type": "hook_additional_context", "content": [text], "hookEvent": event}
            self._line(type="attachment", attachment=attachment)
        return text

    def run(self, event: str, tool: str = "", **fields: Any) -> Mapping[str, Any]:
        """Run the hooks of an event, and return the specific output of the last one."""
        payload = {
            "session_id": self.id,
            "transcript_path": str(self.path),
            "cwd": str(self.cwd),
            "hook_event_name": event,
            **({"tool_name": tool} if tool else {}),
            **fields,
        }
        output: dict[str, Any] = {}
        for command in self.lab.hooks(event, tool):
            timed = {"UserPromptSubmit": self.lab.prompts, "SessionStart": self.lab.starts}
            with timed.get(event, Timed()).one():
                done = subprocess.run(  # noqa: S602 - as the agent runs it
                    command, input=json.dumps(payload).encode(), env=self.lab.environment,
                    capture_output=True, timeout=_SECONDS, check=False, cwd=self.cwd, shell=True,
                )  # fmt: skip
            if done.returncode:
                raise RecollectError(f"hook {event} failed: {done.stderr.decode()[-300:]}")
            if done.stdout.strip():
                output = json.loads(done.stdout).get("hookSpecificOutput") or {}
        return output

    def prompt(self, text: str) -> str:
        """The user submits a prompt; return what the hooks add."""
        used = self.lab.processor_seconds()
        added = self.run("UserPromptSubmit", prompt=text)
        self.lab.prompt_seconds += self.lab.processor_seconds() - used
        self._user(text)
        context = str(added.get("additionalContext") or "")
        if context:
            attachment = {"type": "hook_additional_context", "content": [context]}
            self._line(type="attachment", attachment=attachment)
        return context

    def play(self, turn: Turn, number: int) -> None:
        """The user's prompt and all that the agent does until its last message."""
        if turn.compacted:
            self._compact()
        self.prompt(turn.prompt)
        tools = list(turn.tools)
        if tools and (number * 37) % 100 < 100 * _EXPLORES:
            tools.insert(0, ("read", FILES[number * 7 % len(FILES)]))
        for place, (tool, argument) in enumerate(tools):
            output = output_of(tool, argument, number)
            if place == len(tools) - 1 and turn.lines:
                output = "\n".join([*output.splitlines()[:12], *turn.lines])
            self._call(tool, argument, output)
        if turn.task:
            self.task(turn.task, turn.result)
        if turn.answer:
            self._reply([{"type": "text", "text": turn.answer}])
        self._done.append(turn.prompt[:60])
        self.run("Stop", stop_hook_active=False, last_assistant_message=turn.answer)

    def task(self, prompt: str, result: str = "") -> str:
        """The agent starts a subagent; return the prompt that the subagent gets."""
        given = {"description": prompt[:30], "prompt": prompt, "subagent_type": "general-purpose"}
        call = f"toolu_{uuid.uuid4().hex[:16]}"
        output = self.run("PreToolUse", "Agent", tool_input=given, tool_use_id=call)
        given = {**given, **(output.get("updatedInput") or {})}
        if result:
            self._reply([{"type": "tool_use", "id": call, "name": "Agent", "input": given}])
            self._subagent(str(given["prompt"]), result)
            answer = {"type": "tool_result", "tool_use_id": call, "content": "Done, see below."}
            self._user([answer])
        return str(given["prompt"])

    def _subagent(self, prompt: str, result: str) -> None:
        agent = uuid.uuid4().hex[:17]
        path = self.path.with_suffix("") / "subagents" / f"agent-{agent}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        told = {"agent_id": agent, "agent_type": "general-purpose"}
        self.run("SubagentStart", **told)
        content = [{"type": "text", "text": result}]
        lines = ({"role": "user", "content": prompt}, {"role": "assistant", "content": content})
        with path.open("w", encoding="utf-8") as file:
            last = None
            for message in lines:
                own = str(uuid.uuid4())
                side = {"isSidechain": True, "agentId": agent, "parentUuid": last}
                line = self._fields(own) | side | {"type": message["role"], "message": message}
                file.write(json.dumps(line) + "\n")
                last = own
        self.run(
            "SubagentStop",
            **told,
            agent_transcript_path=str(path),
            last_assistant_message=result,
            stop_hook_active=False,
        )

    def _compact(self) -> None:
        self.run("PreCompact", trigger="auto", custom_instructions="")
        self._line(type="system", subtype="compact_boundary", parentUuid=None, compactMetadata={})
        text = SUMMARY.format(done="; ".join(self._done))
        message = {"role": "user", "content": text}
        self._line(type="user", isCompactSummary=True, message=message)
        self.tell("SessionStart", source="compact")

    def end(self) -> None:
        """The user leaves."""
        self.run("SessionEnd", reason="prompt_input_exit")
        for path in (self.path, *self.path.with_suffix("").glob("subagents/*.jsonl")):
            if path.exists():
                os.utime(path, (self.lab.clock.now().timestamp(),) * 2)

    def _user(self, content: Any) -> None:
        self._line(type="user", message={"role": "user", "content": content})

    def _reply(self, content: list[dict[str, Any]]) -> None:
        message = {
            "id": f"msg_{uuid.uuid4().hex[:12]}",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": content,
            "usage": {"input_tokens": 5, "output_tokens": 5},
        }
        self._line(type="assistant", message=message)

    def _call(self, tool: str, argument: str, output: str) -> None:
        call = f"toolu_{uuid.uuid4().hex[:16]}"
        name, given = {
            "read": ("Read", {"file_path": argument}),
            "edit": ("Edit", {"file_path": argument, "old_string": "x", "new_string": "y"}),
            "grep": ("Grep", {"pattern": argument}),
        }.get(tool, ("Bash", {"command": argument}))
        if "file_path" in given:
            given["file_path"] = str(self.cwd / argument)
        self._reply([{"type": "tool_use", "id": call, "name": name, "input": given}])
        self._user([{"type": "tool_result", "tool_use_id": call, "content": output}])

    def _fields(self, own: str) -> dict[str, Any]:
        said_at = self.lab.clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "parentUuid": self._last,
            "isSidechain": False,
            "cwd": str(self.cwd),
            "sessionId": self.id,
            "version": "2.1.325",
            "uuid": own,
            "timestamp": said_at,
        }

    def _line(self, **fields: Any) -> None:
        own = str(uuid.uuid4())
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**self._fields(own), **fields}, separators=(",", ":")) + "\n")
        self.messages += fields["type"] in ("user", "assistant")
        self._last = own


PAUSE: Final = timedelta(minutes=9)
"""Between two prompts of a session."""
