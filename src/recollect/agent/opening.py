"""Opens an agent with its memory, models, transcript and workspace files.

Closing the agent, or a failure to open it, also closes its memory, models and transcript."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from recollect.adapters.session.files import SessionIndex, transcript_file, write_durably
from recollect.adapters.session.transcript import SessionTranscript, open_transcript
from recollect.adapters.session.workspace import create_missing_files
from recollect.adapters.wiring.memory import open_memory
from recollect.adapters.wiring.models import choose_model
from recollect.agent.loop import Agent
from recollect.agent.tools.confine import ShellRule
from recollect.core.ports import ChatModel, Clock
from recollect.core.rules.budget import window_of
from recollect.errors import MissingExtra, SettingsError
from recollect.hosts.tools.handler import Confirm
from recollect.system.config import Settings, load_settings
from recollect.system.config.load import find_settings_file
from recollect.system.projects import chat_space

WINDOW_SECONDS = 5.0
"""Time limit for a server to report its window. Without a report, an overflow reveals the size."""


@runtime_checkable
class _StatesWindow(Protocol):
    async def stated_window(self) -> int | None: ...


@asynccontextmanager
async def open_agent(
    workspace: Path | str,
    *,
    key: str = "main",
    session_id: str | None = None,
    space: str | None = None,
    store: str | Path | None = None,
    config: Path | str | None = None,
    model: ChatModel | None = None,
    clock: Clock | None = None,
    read_only: bool = False,
    shell: ShellRule | None = None,
    confirm_forget: Confirm | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> AsyncIterator[Agent]:
    """Open an agent in `workspace` that continues the session `key`, or `session_id` if given.

    The default space is that of the folder's project. `model` replaces all models of the settings.
    Missing workspace files are created, unless `workspace.skip_bootstrap` is set or the agent may
    only read. `shell` is the rule for commands; by default they run with the rights of this
    process. `confirm_forget` asks a person before a memory tool forgets anything; if it is None,
    nothing is forgotten. `config` is a settings file, which no tool may write."""
    folder = Path(workspace).resolve()  # noqa: ASYNC240 - once, before anything runs
    named = find_settings_file(config)
    chosen = (
        settings
        if isinstance(settings, Settings)
        else load_settings(arguments=dict(settings or {}), file=named).settings
    )
    space = space or chat_space(str(folder))
    async with AsyncExitStack() as opened:
        main, summary = _models(chosen, opened) if model is None else (model, model)
        chosen = await _with_window(chosen, main, summary)
        index = SessionIndex.of_space(space, clock=clock)

        def open_session(id: str) -> SessionTranscript:  # noqa: A002
            return open_transcript(
                transcript_file(space, id),
                session_id=id,
                redaction=chosen.redaction,
                cwd=folder,
                clock=clock,
            )

        if not read_only and not chosen.workspace.skip_bootstrap:
            create_missing_files(folder)
        engine = open_memory(
            space=space,
            store=store,
            clock=clock,
            workspace=folder,
            model=summary,
            compact_in_background=False,
            settings=chosen,
        )
        opened.push_async_callback(engine.close)
        transcript = opened.enter_context(open_session(session_id or index.open(key).session_id))
        if session_id is not None:  # from now on the key continues this session
            index.update(key, lambda record: replace(record, session_id=session_id))
        others = index.path.parent.glob("*.jsonl")
        agent = Agent(
            engine,
            main,
            transcript,
            folder,
            clock=clock,
            max_output_tokens=chosen.models.max_output_tokens,
            read_only=read_only,
            shell=shell,
            first_run=not read_only and all(one == transcript.path for one in others),
            open_session=lambda: open_session(index.start_transcript(key).session_id),
            choose_model=None if model is not None else partial(_named_model, chosen, opened),
            confirm_forget=confirm_forget,
            settings_file=named and named.absolute(),
            keep_counts=lambda counts: index.update(key, lambda old: old.with_counts(counts)),
            resumed=session_id is not None,
        )
        opened.push_async_callback(agent.close)
        if agent.conversation.compactions:  # `recollect undo` changes only the store
            await engine.observe(
                transcript.session_id, {"usage": {}}
            )  # `context` loads the session
            state = engine.session(transcript.session_id).state
            await write_durably(agent.conversation.record_undos, state)
        yield agent


def _models(settings: Settings, opened: AsyncExitStack) -> tuple[ChatModel, ChatModel]:
    """Return the model for replies and the model for summaries."""
    main = choose_model(settings, "main")
    if main is None:
        raise SettingsError(
            "there is no model to talk to: set models.provider and models.main, or pass `model=`"
        )
    summary = choose_model(settings, "summary") or main
    by_name = {model.name: model for model in (summary, main)}  # open one connection per model
    for model in by_name.values():
        opened.push_async_callback(model.close)
    return main, by_name[summary.name]


def _named_model(settings: Settings, opened: AsyncExitStack, name: str) -> ChatModel:
    named = replace(settings, models=replace(settings.models, main=name))
    model = choose_model(named, "main")
    if model is None:
        raise SettingsError("there is no provider to ask: set models.provider")
    opened.push_async_callback(model.close)
    return model


async def _with_window(settings: Settings, main: ChatModel, summary: ChatModel) -> Settings:
    if settings.window_tokens is not None:
        return settings
    unknown = {id(model): model for model in (main, summary) if model.window_tokens is None}
    with suppress(TimeoutError, MissingExtra):  # the first turn reports what is missing
        async with asyncio.timeout(WINDOW_SECONDS):
            for model in unknown.values():
                if isinstance(model, _StatesWindow):
                    await model.stated_window()
    known = window_of(main.name, settings).source != "assumed"
    # The engine asks its own model for summaries: another model may have another window.
    if known or main.name == summary.name:
        return settings
    return replace(settings, window_tokens=main.window_tokens)
