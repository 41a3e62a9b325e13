"""Opens an agent with all that stands beside it: memory, models, transcript, workspace files.

What a host would otherwise assemble by hand. Closing it closes what it opened, and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import tzinfo
from pathlib import Path
from typing import Any

from recollect.agent.loop import Agent
from recollect.config import Settings, load_settings
from recollect.errors import SettingsError
from recollect.ports import ChatModel, Clock
from recollect.session.index import SessionIndex
from recollect.session.places import transcript_file
from recollect.session.transcript import Transcript, open_transcript
from recollect.session.workspace_defaults import create_missing_files
from recollect.wiring.memory import open_memory
from recollect.wiring.models import choose_model


@asynccontextmanager
async def open_agent(
    workspace: Path | str,
    *,
    key: str = "main",
    space: str | None = None,
    store: str | Path | None = None,
    config: Path | str | None = None,
    model: ChatModel | None = None,
    clock: Clock | None = None,
    tz: tzinfo | None = None,
    read_only: bool = False,
    allow_outside: bool = False,
    settings: Settings | Mapping[str, Any] | None = None,
) -> AsyncIterator[Agent]:
    """An agent at work in `workspace`, going on with the session `key` where it was left.

    The space is the workspace folder unless it is named; `model` carries the conversation, and
    summarises unless the settings name another. Files that the workspace lacks are created, unless
    `workspace.skip_bootstrap` is set or it is read-only.
    """
    folder = Path(workspace).resolve()  # noqa: ASYNC240 - once, before anything runs
    chosen = settings if isinstance(settings, Settings) else _read(settings, config)
    main = model or choose_model(chosen, "main")
    if main is None:
        raise SettingsError(
            "there is no model to talk to: set models.provider and models.main, or give `model=`"
        )
    space = space or str(folder)
    index = SessionIndex.of_space(space, clock=clock)
    created = None
    if not read_only:
        created = create_missing_files(folder, skip_bootstrap=chosen.workspace.skip_bootstrap)
    first_run = index.get(key) is None
    summariser = main if model is not None else (choose_model(chosen, "summary") or main)
    flush_model = main if model is not None else choose_model(chosen, "flush")
    engine = open_memory(
        space=space,
        store=store,
        clock=clock,
        workspace=folder,
        model=summariser,
        compact_in_background=False,
        settings=chosen,
    )

    def begin(session_id: str) -> Transcript:
        return open_transcript(
            transcript_file(space, session_id),
            session_id=session_id,
            redaction=chosen.redaction,
            cwd=folder,
            clock=clock,
        )

    transcript = begin(index.open(key).session_id)
    try:
        agent = Agent(
            engine,
            main,
            transcript,
            folder,
            index=index,
            key=key,
            clock=clock,
            tz=tz,
            flush_model=flush_model,
            read_only=read_only,
            allow_outside=allow_outside,
            first_run=first_run and created is not None,
            open_session=lambda: begin(index.begin_anew(key).session_id),
        )
        try:
            yield agent
        finally:
            agent.conversation.transcript.close()
    finally:
        await engine.close()
        for one in {id(each): each for each in (main, summariser, flush_model) if each}.values():
            if one is not model:
                await one.close()


def _read(settings: Mapping[str, Any] | None, config: Path | str | None) -> Settings:
    file = None if config is None else Path(config)
    return load_settings(arguments=dict(settings or {}), file=file).settings
