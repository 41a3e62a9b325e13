"""Answers hooks of Claude Code and Codex: stores the transcript, and adds relevant memories to a
prompt. Messages are identified by content, so a repeated hook stores nothing twice. After a
failure, the agent still gets an object that it accepts, within the agent's time limit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from recollect.adapters.wiring.merge import finish_moves, import_rules
from recollect.core.boundary import Failure, attempted
from recollect.core.engine import Context, Engine
from recollect.core.engine.host_receipts import store_host_receipts
from recollect.core.engine.lookup import embed_missing
from recollect.core.formats.blocks import texts_of
from recollect.core.formats.json_text import decode_outer, encode
from recollect.core.formats.recalled_block import join_blocks, recalled_items, without_items
from recollect.core.rules.tokens import count_text
from recollect.core.transfer.agent_histories import first_folder
from recollect.core.transfer.transcripts import import_transcript
from recollect.core.turn.inject import find_repeated_items, has_hit
from recollect.core.turn.past_turns import NOT_TYPED
from recollect.core.values.edit import Insert
from recollect.core.values.report import AGENTS_OWN_WINDOW_TOKENS
from recollect.core.values.transcript import RecordedSession
from recollect.hosts.hooks.brief import moment_answer, session_brief, standing_rules_block
from recollect.hosts.hooks.compactions import GIVEN_TOKENS, AgentCompactions, best_memories
from recollect.hosts.hooks.install import installed_at
from recollect.hosts.hooks.left_out import BLOCK_TOKENS as LEFT_OUT_TOKENS
from recollect.hosts.hooks.subagents import keep_result, updated_task
from recollect.hosts.hooks.transcript_file import AgentName, FollowedTranscript, read_whole
from recollect.hosts.memories import MemoryPool, OpenMemory, open_space
from recollect.system.config import Settings
from recollect.system.plain_text import number_of
from recollect.system.projects import offer_memory, project_space

MOST_CHARS: Final[Mapping[AgentName, int]] = {"claude-code": 9_500, "codex": 7_500}
"""Character limit of added context. Agents move longer texts into a file, which no model reads."""
BLOCK_TOKENS: Final = 450
"""Token limit of the memories for a prompt. They stay in the agent's window until it compacts."""
SETTLE_SECONDS: Final = 2.0
MORE: Final = "More: Recollect's memory tools, or `recollect memory search WORDS`."
"""Last line of the first memories that a session gets."""
WHOLE_SECONDS: Final = 1.5
"""Time that a hook waits until the messages before a compaction are stored."""
FINISH_SECONDS: Final = 600.0
"""Time limit to store a transcript, in case the store hangs. Masking 20 MB of hostile text takes
24 s."""
STORING_EVENTS: Final = ("Stop", "PreCompact", "PostCompact", "SessionEnd")
"""The events that only store messages."""
CATCH_UP_SECONDS: Final = 30.0
CATCH_UP_BYTES: Final = 64 << 20
CATCH_UP_FILES: Final = 50
"""Number of other sessions to read when a session starts, the newest first."""
QUIET_SECONDS: Final = 5.0
"""Agents may write to a transcript for this long after the last message."""
_MOST_SESSIONS: Final = 500
_MOST_TRANSCRIPTS: Final = 64
LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _HookSession:
    space: str
    folder: str = ""
    offer: str = ""
    """A line for the user: another memory that may belong to the session's project."""
    prompt: str = field(default="", repr=False)
    has_more: bool = False
    """True if the session knows where more is (`MORE`)."""
    told: frozenset[str] = field(default=frozenset(), repr=False)
    """What the last session start added. The transcript may not have it yet."""
    context_added_at: int | None = None
    """Number of compactions when a session start last added context, -1 for a new session; None
    after a prompt."""
    archived: tuple[int, ...] = ()
    """Size and time of the transcript file when the whole file had been stored."""
    stored_compactions: int = 0
    """Number of compactions whose earlier messages are stored."""
    is_storing_earlier: bool = False
    """True while messages from before a compaction are being stored."""
    work: asyncio.Task[None] | None = None
    """Stores messages from before a compaction."""

    def with_more(self, text: str) -> str:
        """Return a text with the line that names the tools of memory, once per session."""
        if self.has_more or not text:
            return text
        self.has_more = True
        return f"{text}\n{MORE}"


class HookMemory:
    """Answers the hooks of every session with the memory of the session's project."""

    def __init__(self, settings: Settings) -> None:
        settings = settings.across_sessions()
        recall = settings.recall
        self._settings = replace(
            settings,
            window_tokens=AGENTS_OWN_WINDOW_TOKENS,
            compaction=replace(settings.compaction, enabled=False),
            recall=replace(
                recall,
                hard_cap_tokens=min(recall.hard_cap_tokens, BLOCK_TOKENS),
                standing_tokens=0,  # the brief has the rules
                sparing=True,
            ),
        )
        self.spaces: MemoryPool[str, OpenMemory] = MemoryPool(
            lambda space: OpenMemory(open_space(space, self._settings))
        )
        self._sessions: OrderedDict[str, _HookSession] = OrderedDict()
        self._transcripts: OrderedDict[tuple[AgentName, str], FollowedTranscript] = OrderedDict()
        self._compactions = AgentCompactions()
        self._beside: set[asyncio.Task[Any]] = set()
        self._caught_up: dict[tuple[str, Path], tuple[int, int]] = {}

    async def answer(self, agent: AgentName, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hook's output; {} if it has none, or after a failure."""
        event = str(payload.get("hook_event_name") or "")
        session_id = str(payload.get("session_id") or "")
        cwd = str(payload.get("cwd") or "")
        if not session_id or not Path(cwd).is_absolute():
            return {}
        self._compactions.note(session_id, payload)
        if payload.get("agent_id") and event not in ("PreToolUse", "SubagentStop"):
            return {}  # the session of a subagent gets its result alone
        added = await attempted(self._answer(agent, event, session_id, cwd, payload))
        if isinstance(added, Failure):
            LOG.warning("hook %s of %s was not answered: %s", event, agent, added.said)
            return {}
        session = self._sessions.get(session_id)
        notices = [] if session is None else [session.offer]
        if session is not None:
            session.offer = ""
        if self._settings.daemon.notices and isinstance(added, str):
            notices.append(notice_of(added))
        elif not isinstance(added, str) and self._settings.daemon.notices:
            task = str(payload["tool_input"]["prompt"])
            notices.append(f"{notice_of(added['prompt'].removeprefix(task))} for a subagent")
        answer: dict[str, Any] = {}
        if event == "PreToolUse" and added:
            answer["hookSpecificOutput"] = {"hookEventName": event, "updatedInput": added}
        elif added:
            answer["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": added}
        if any(notices):
            answer["systemMessage"] = "\n".join(filter(None, notices))
        return answer

    async def _answer(
        self, agent: AgentName, event: str, session_id: str, cwd: str, payload: Mapping[str, Any]
    ) -> str | dict[str, Any]:
        path = str(payload.get("transcript_path") or "")
        session = await self._session(session_id, agent, path, cwd)
        memory = await self.spaces.get(session.space)
        if isinstance(memory, Failure):
            return ""
        hook = _Hook(
            agent=agent,
            session_id=session_id,
            session=session,
            memory=memory,
            transcript=self._followed(agent, path),
        )
        memory.touch(session_id)
        if event == "PreToolUse" and self._settings.daemon.tasks:
            return await updated_task(memory.engine, session_id, payload) or ""
        if event == "SubagentStop":
            folder = Path(path).parent if Path(path).is_absolute() else None
            await keep_result(memory.engine, agent, payload, folder)
            return ""
        if event == "UserPromptSubmit":
            return await self._answer_prompt(hook, str(payload.get("prompt") or ""))
        if event == "SessionStart":
            return await self._started(hook, payload)
        if event in STORING_EVENTS:
            await self._archive(hook, ended=event == "SessionEnd")
        if event == "SessionEnd":
            self._sessions.pop(session_id, None)
            self._transcripts.pop((agent, hook.transcript.path), None)
            memory.engine.end(session_id)
        return ""

    async def _session(
        self, session_id: str, agent: AgentName, path: str, cwd: str
    ) -> _HookSession:
        known = self._sessions.get(session_id)
        if known is None:
            began_in = await asyncio.to_thread(first_folder, agent, Path(path))
            folder = began_in or cwd
            space = await asyncio.to_thread(project_space, folder)
            known = _HookSession(space=space, folder=folder)
            known = self._sessions.setdefault(session_id, known)
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return known

    def _followed(self, agent: AgentName, path: str) -> FollowedTranscript:
        known = self._transcripts.pop((agent, path), None) or FollowedTranscript(agent, path)
        self._transcripts[agent, path] = known
        if len(self._transcripts) > _MOST_TRANSCRIPTS:
            self._transcripts.popitem(last=False)
        return known

    async def _answer_prompt(self, hook: _Hook, prompt: str) -> str:
        hook.session.context_added_at = None
        if not prompt.strip() or prompt.lstrip().startswith(NOT_TYPED):
            return ""
        hook.session.prompt = prompt
        look = await asyncio.to_thread(hook.transcript.look)
        body = request_with(look.session, hook.agent, prompt)
        engine = hook.memory.engine
        has_window = look.session is not None and bool(look.session.current)
        moment = await moment_answer(
            engine, hook.session_id, hook.session.folder, prompt, has_window=has_window
        )
        with hook.memory.in_use(hook.session_id):
            context = await engine.prepare(hook.session_id, body, format=_FORMATS[hook.agent])
        known = look.added | hook.session.told
        if not moment:
            return hook.new_context(context, known=known)
        recalled = hook.new_context(context, known=known)
        told = [item for item in recalled_items(recalled) if item.partition(": ")[2] in moment]
        left_tokens = BLOCK_TOKENS - engine.parts.weigher.text(moment)
        fitting = best_memories(
            without_items(recalled, told), context, left_tokens, engine.parts.weigher.text
        )
        return "\n".join(filter(None, (moment, fitting)))

    async def _started(self, hook: _Hook, payload: Mapping[str, Any]) -> str:
        source = payload.get("source")
        if source in ("startup", "clear"):
            hook.session.offer = await asyncio.to_thread(offer_memory, hook.session.folder)
            self._later(finish_moves(self._settings, self._settings.store.url))
        self._later(self._catch_up(hook))
        self._later(embed_missing(hook.memory.engine, load=self._settings.jobs.in_process))
        if source in ("compact", "clear"):
            await self._archive(hook)
        elif source in ("resume", "fork"):
            self._later(self._archive(hook))
        expired = payload.get("prompt_cache_likely_expired") is True
        look = await asyncio.to_thread(hook.transcript.look)
        compactions = look.compactions
        # Without a compaction, a resumed session has all its messages in the window.
        resumes = source == "resume" and expired and compactions > 0
        is_new = source in ("startup", "clear")
        if not (source == "compact" or resumes or is_new):
            return ""
        if source == "compact" and hook.agent == "claude-code":
            compactions += 1  # its transcript does not have this compaction yet
        added_at = -1 if is_new else compactions
        if hook.session.context_added_at == added_at:
            return ""
        hook.session.context_added_at = added_at
        if is_new:
            brief = await session_brief(hook.memory.engine, hook.session_id, hook.session.folder)
            told = recalled_items(brief)
            hook.session.told = frozenset((*told, *(f"{item}." for item in told)))
            return brief
        transcript = await asyncio.to_thread(read_whole, hook.agent, hook.transcript.path)
        newest = "" if transcript is None else newest_prompt(transcript)
        engine = hook.memory.engine
        window = look.session if source == "resume" else None
        body = request_with(window, hook.agent, hook.session.prompt or newest or "Go on.")
        context = await engine.preview(hook.session_id, body, format=_FORMATS[hook.agent])
        weigh = engine.parts.weigher.text
        block = await self._compactions.left_out_block(
            engine, hook.session_id, transcript, window, LEFT_OUT_TOKENS - weigh(MORE)
        )
        rules = await standing_rules_block(engine, hook.session_id) if window is None else ""
        block = "\n".join(filter(None, (block, rules)))
        known = frozenset(recalled_items(block)) | (look.added if window else frozenset())
        most = GIVEN_TOKENS - weigh(f"{block}\n{MORE}")
        recalled = best_memories(hook.new_context(context, known=known), context, most, weigh)
        texts = [text for text in (block, recalled.removesuffix(f"\n{MORE}")) if text]
        hook.session.has_more = bool(texts)
        return "\n".join([*texts, MORE]) if texts else ""

    async def _archive(self, hook: _Hook, *, ended: bool = False) -> None:
        """Store the messages that memory lacks. After a compaction, and for a session that is new
        to this process, earlier messages are stored last, in parallel if they take long."""
        look = await asyncio.to_thread(hook.transcript.look)
        session = hook.session
        if not look.state or look.state != session.archived:
            await self._keep(hook, look.session)
            session.archived = look.state
        if look.compactions != session.stored_compactions and not session.is_storing_earlier:
            session.is_storing_earlier = True
            session.work = self._later(self._keep_whole(hook, look.compactions))
            await asyncio.wait({session.work}, timeout=WHOLE_SECONDS)
        if self._compactions.has_new(hook.session_id, look.compactions):
            self._later(self._store_receipts(hook, ended=ended))

    async def _store_receipts(self, hook: _Hook, *, ended: bool) -> None:
        if hook.session.work is not None:  # the searches of receipts need all messages
            await asyncio.wait({hook.session.work})
        engine, path = hook.memory.engine, hook.transcript.path
        await self._compactions.store_receipts(
            engine, hook.agent, hook.session_id, path, ended=ended
        )

    async def _keep_whole(self, hook: _Hook, compactions: int) -> None:
        try:
            path = hook.transcript.path
            await self._keep(hook, await asyncio.to_thread(read_whole, hook.agent, path))
            hook.session.stored_compactions = compactions
        finally:  # after a failure, the next hook continues
            hook.session.is_storing_earlier = False

    async def _catch_up(self, hook: _Hook) -> None:
        """Store messages from the project's other sessions whose hooks did not run, newest first.
        Skip transcripts of unknown sessions that are older than the hooks."""
        until = time.monotonic() + CATCH_UP_SECONDS
        path, space = Path(hook.transcript.path), hook.session.space
        since = await asyncio.to_thread(installed_at, hook.agent)
        sessions = await hook.memory.engine.parts.store.sessions()
        known = {one.session: one.last_said_at or 0.0 for one in sessions}
        left_bytes = CATCH_UP_BYTES
        for other in await asyncio.to_thread(_beside, hook.agent, path):
            if time.monotonic() > until:
                return
            if self._caught_up.get((space, other.path)) == other.state:
                continue
            folder = await asyncio.to_thread(first_folder, hook.agent, other.path)
            if folder is not None and project_space(folder, keep=False) == space:
                if other.state[0] > left_bytes:
                    continue  # a later transcript may be small enough
                left_bytes -= other.state[0]
                done = await attempted(self._catch_up_with(hook, other, known, since))
                if isinstance(done, Failure):
                    LOG.warning(
                        "could not store a session whose end no hook reported: %s", done.said
                    )
                    continue  # the next session start tries again
            self._caught_up[space, other.path] = other.state

    async def _catch_up_with(
        self, hook: _Hook, other: _FoundTranscript, known: Mapping[str, float], since: float
    ) -> None:
        transcript = await asyncio.to_thread(read_whole, hook.agent, str(other.path))
        name = "" if transcript is None else transcript.session_id or other.path.stem
        said_at = known.get(name)
        is_new = said_at is None and other.modified_at >= since
        grew = said_at is not None and other.modified_at > said_at + QUIET_SECONDS
        if name in self._sessions or not (is_new or grew):
            return  # this session's own hooks will run, or nothing is missing
        session = _HookSession(space=hook.session.space)
        followed = FollowedTranscript(hook.agent, str(other.path))
        await self._keep(
            replace(hook, session_id=name, session=session, transcript=followed), transcript
        )
        if transcript is not None:
            await store_host_receipts(hook.memory.engine.parts, name, transcript)

    async def _keep(self, hook: _Hook, transcript: RecordedSession | None) -> None:
        if transcript is None or not transcript.items:
            return
        # Wait until the prompt's own request is written: the transcript contains it, too.
        await hook.memory.engine.settle(SETTLE_SECONDS)
        await archive(
            hook.memory.engine,
            transcript,
            self._settings,
            space=hook.session.space,
            session=hook.session_id,
            file=hook.transcript.path,
            now=time.time(),
            look_again=not hook.session.archived,
        )

    def _later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        async def done() -> None:
            outcome = await attempted(work)
            if isinstance(outcome, Failure):
                LOG.warning("work in the background failed: %s", outcome.said)

        task = asyncio.create_task(done())
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def close(self) -> None:
        until = time.monotonic() + self._settings.store.close_seconds
        while self._beside and time.monotonic() < until:  # a task may have started another
            await asyncio.wait(self._beside, timeout=until - time.monotonic())
        if self._beside:
            LOG.warning("closed while transcripts were read: the next session start continues")
        for task in self._beside:
            task.cancel()
        await self.spaces.close()


def notice_of(added: str) -> str:
    """Return the line that shows the user what was added."""
    count = len(recalled_items(added))
    return f"recollect: {number_of(count, 'passage')}, {count_text(added)} tokens" if count else ""


async def archive(
    engine: Engine,
    transcript: RecordedSession,
    settings: Settings,
    *,
    space: str,
    session: str,
    file: str,
    now: float,
    look_again: bool = True,
) -> int:
    """Store the messages of a transcript that the memory lacks; return their number."""
    rules = await asyncio.to_thread(import_rules, settings, space, settings.store.url)
    counts = await engine.parts.store.with_deadline(FINISH_SECONDS).call(
        import_transcript,
        transcript,
        session=session,
        file=file,
        file_said_at=now,
        rules=rules,
        look_again=look_again,
    )
    await embed_missing(engine)
    return counts.stored


_FORMATS: Final[Mapping[AgentName, Literal["anthropic", "openai-responses"]]] = {
    "claude-code": "anthropic",
    "codex": "openai-responses",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hook:
    agent: AgentName
    session_id: str
    session: _HookSession
    memory: OpenMemory
    transcript: FollowedTranscript

    def new_context(self, context: Context, *, known: frozenset[str]) -> str:
        fresh: list[str] = []
        hits = () if context.recalled is None else context.recalled.hits
        for edit in context.report.new_edits:
            if not isinstance(edit, Insert):
                continue
            repeated = find_repeated_items(edit.text, known)
            left = without_items(edit.text, repeated)
            # leave out the neighbors of a hit that the window already contains
            if left and not (repeated and edit.stage == "inject" and not has_hit(left, hits)):
                fresh.append(left)
                known = known.union(recalled_items(left))
        if not fresh:
            return ""
        most = MOST_CHARS[self.agent] - len(MORE) - 1
        return self.session.with_more(join_blocks(fresh, most))


@dataclass(frozen=True, slots=True)
class _FoundTranscript:
    path: Path
    state: tuple[int, int]
    """Size of the file, and its modification time in nanoseconds."""

    @property
    def modified_at(self) -> float:
        return self.state[1] / 1e9


def _beside(agent: AgentName, path: Path) -> list[_FoundTranscript]:
    if not path.is_absolute():
        return []
    folder, pattern = path.parent, "*.jsonl"
    if agent == "codex":
        by_day = len(path.parents) > 3 and path.parent.name.isdigit()
        folder = path.parents[3] if by_day else path.parent
        pattern = "*/*/*/rollout-*.jsonl" if by_day else "rollout-*.jsonl"
    found: list[_FoundTranscript] = []
    for other in folder.glob(pattern):
        if other != path and not other.name.startswith("agent-"):
            with suppress(OSError):
                stat = other.stat()
                found.append(_FoundTranscript(other, (stat.st_size, stat.st_mtime_ns)))
    return sorted(found, key=lambda one: -one.state[1])[:CATCH_UP_FILES]


def request_with(transcript: RecordedSession | None, agent: AgentName, prompt: str) -> bytes:
    """Build the agent's next request from its transcript and the prompt."""
    raws: list[bytes] = []
    if transcript is not None:
        raws = [transcript.items[at].raw for at in transcript.current]
    if agent == "codex":
        part = {"type": "input_text", "text": prompt}
        last = encode({"type": "message", "role": "user", "content": [part]})
    else:
        last = encode({"role": "user", "content": prompt})
    if not raws or raws[-1] != last:
        raws.append(last)
    return request_of(raws, agent)


def request_of(raws: Sequence[bytes], agent: AgentName) -> bytes:
    key = b'"input"' if agent == "codex" else b'"messages"'
    return b"{%s:[%s]}" % (key, b",".join(raws))


def newest_prompt(transcript: RecordedSession) -> str:
    """Return the user's last text, ignoring tool results."""
    for item in reversed(transcript.items):
        message = decode_outer(item.raw)
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        texts = [content] if isinstance(content, str) else texts_of(content or ())
        text = "\n".join(texts).strip()
        if text and not text.startswith(NOT_TYPED):
            return text
    return ""
