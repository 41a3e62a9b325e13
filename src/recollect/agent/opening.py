"""Opens an agent with its memory, models, transcript and workspace files.

Closing the agent, or a failure to open it, also closes its memory, models and transcript."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

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
    named_path = find_settings_file(config)
    if not isinstance(settings, Settings):
        settings = load_settings(arguments=dict(settings or {}), file=named_path).settings
    loaded_settings = settings
    space = space or chat_space(str(folder))
    async with AsyncExitStack() as exit_stack:
        main, summary = _models(loaded_settings, exit_stack) if model is None else (model, model)
        loaded_settings = await _with_window(loaded_settings, main, summary)
        index = SessionIndex.of_space(space, clock=clock)

        def open_session(id: str) -> SessionTranscript:  # noqa: A002
            return open_transcript(
                transcript_file(space, id),
                session_id=id,
                redaction=loaded_settings.redaction,
                cwd=folder,
                clock=clock,
            )

        if not read_only and not loaded_settings.workspace.skip_bootstrap:
            create_missing_files(folder)
        engine = open_memory(
            space=space,
            store=store,
            clock=clock,
            workspace=folder,
            model=summary,
            compact_in_background=False,
            settings=loaded_settings,
        )
        exit_stack.push_async_callback(engine.close)
        transcript = exit_stack.enter_context(
            open_session(session_id or index.open(key).session_id)
        )
        if session_id is not None:  # from now on the key continues this session
            index.update(key, lambda record: replace(record, session_id=session_id))
        transcript_paths = index.path.parent.glob("*.jsonl")
        agent = Agent(
            engine,
            main,
            transcript,
            folder,
            clock=clock,
            max_output_tokens=loaded_settings.models.max_output_tokens,
            read_only=read_only,
            shell=shell,
            first_run=not read_only and all(path == transcript.path for path in transcript_paths),
            open_session=lambda: open_session(index.start_transcript(key).session_id),
            choose_model=None
            if model is not None
            else partial(_open_model, loaded_settings, exit_stack),
            confirm_forget=confirm_forget,
            settings_file=named_path and named_path.absolute(),
            keep_counts=lambda counts: index.update(key, lambda record: record.with_counts(counts)),
            resumed=session_id is not None,
        )
        exit_stack.push_async_callback(agent.close)
        if agent.conversation.compactions:  # `recollect undo` changes only the store
            await engine.observe(
                transcript.session_id, {"usage": {}}
            )  # `context` loads the session
            state = engine.session(transcript.session_id).state
            await write_durably(agent.conversation.record_undos, state)
        yield agent


def _models(settings: Settings, exit_stack: AsyncExitStack) -> tuple[ChatModel, ChatModel]:
    """Return the model for replies and the model for summaries."""
    main = choose_model(settings, "main")
    if main is None:
        raise SettingsError(
            "there is no model to talk to: set models.provider and models.main, or pass `model=`"
        )
    summary = choose_model(settings, "summary") or main
    by_name = {model.name: model for model in (summary, main)}  # open one connection per model
    for model in by_name.values():
        exit_stack.push_async_callback(model.close)
    return main, by_name[summary.name]


def _open_model(settings: Settings, exit_stack: AsyncExitStack, name: str) -> ChatModel:
    changed_settings = replace(settings, models=replace(settings.models, main=name))
    model = choose_model(changed_settings, "main")
    if model is None:
        raise SettingsError("there is no provider to ask: set models.provider")
    exit_stack.push_async_callback(model.close)
    return model


async def _with_window(settings: Settings, main: ChatModel, summary: ChatModel) -> Settings:
    if settings.window_tokens is not None:
        return settings
    models_without_window = {
        id(model): model for model in (main, summary) if model.window_tokens is None
    }
    with suppress(TimeoutError, MissingExtra):  # the first turn reports what is missing
        async with asyncio.timeout(WINDOW_SECONDS):
            for model in models_without_window.values():
                if ask_window := getattr(model, "stated_window", None):
                    await ask_window()
    is_known = window_of(main.name, settings).source != "assumed"
    # The engine asks its own model for summaries: another model may have another window.
    if is_known or main.name == summary.name:
        return settings
    return replace(settings, window_tokens=main.window_tokens)
