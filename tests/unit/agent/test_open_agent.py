"""One call opens the agent, and it goes on where it was left."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.agent_harness import QUIET, notes, of
from tests.unit.agent.test_agent_window import SMALL, TALK

from recollect.adapters.session.files import SessionIndex, transcript_file
from recollect.adapters.session.transcript import SessionTranscript, read_session_file
from recollect.adapters.wiring.memory import open_memory
from recollect.agent import opening
from recollect.agent.conversation import is_undone_elsewhere
from recollect.agent.events import Ended, Prepared, Said, Told
from recollect.agent.opening import open_agent
from recollect.core.engine.engine import Engine
from recollect.core.formats.pi_session import build_context
from recollect.core.values.edit import Cut
from recollect.core.values.history import SessionState
from recollect.core.values.message import EntryKey
from recollect.core.values.model import Prompt
from recollect.core.values.reason import NOT_RUN
from recollect.errors import SettingsError, TranscriptLocked
from recollect.testing.scripted_model import Says, ScriptedModel

SETTINGS: dict[str, Any] = {**QUIET, **SMALL}


class Talker(ScriptedModel):
    """Says the same to everything, and summarises as it was asked to."""

    def __init__(self) -> None:
        super().__init__(
            lambda asked: notes(asked) if isinstance(asked, Prompt) else Says(text="fine")
        )


async def said_in(workspace: Path, text: str, model: Any, **given: Any) -> list[Any]:
    async with open_agent(workspace, model=model, **given) as agent:
        return [event async for event in agent.run(text)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    workspace = tmp_path / "work"
    workspace.mkdir()
    return workspace


def test_it_talks_and_goes_on_where_it_was_left(home: Path) -> None:
    model = ScriptedModel(["The port is 8443.", "As I said: 8443."], name="gpt-4.1")
    first = asyncio.run(said_in(home, "Which port?", model))
    assert isinstance(first[-1], Ended)
    assert any(isinstance(event, Said) and "8443" in event.text for event in first)
    asyncio.run(said_in(home, "Again?", model))
    sent: Mapping[str, Any] = model.requests[-1]
    assert "Which port?" in str(sent)
    assert "The port is 8443." in str(sent)


def test_the_first_run_shows_the_files_it_made_and_only_the_first(home: Path) -> None:
    model = ScriptedModel(["Hello.", "Hello again."], name="gpt-4.1")
    asyncio.run(said_in(home, "Hi", model, settings={"workspace.skip_bootstrap": False}))
    assert (home / "AGENTS.md").is_file()
    assert "BOOTSTRAP.md" in str(model.requests[0])
    asyncio.run(said_in(home, "Hi", model))
    assert "BOOTSTRAP.md" not in str(model.requests[1])


def test_a_chat_writes_no_file_into_a_workspace_without_being_asked(home: Path) -> None:
    model = ScriptedModel(["Hello."], name="gpt-4.1")
    events = asyncio.run(said_in(home, "Hi", model))
    assert any(isinstance(event, Said) and "Hello." in event.text for event in events)
    assert list(home.iterdir()) == []


async def test_without_a_model_it_says_what_to_set(home: Path) -> None:
    with pytest.raises(SettingsError, match=r"models\.provider"):
        async with open_agent(home):
            pass


def talk(workspace: Path, *texts: str) -> list[Any]:
    """Turns of one process after the other's."""

    async def turns() -> list[Any]:
        async with open_agent(workspace, model=Talker(), settings=SETTINGS) as agent:
            return [event for text in texts async for event in agent.run(text)]

    return asyncio.run(turns())


def session_of(workspace: Path) -> str:
    record = SessionIndex.of_space(str(workspace)).sessions().get("main")
    assert record is not None
    return record.session_id


def undo_in_the_store(workspace: Path) -> int:
    """As `recollect undo` does it: which compaction went."""

    async def undone() -> int:
        async with open_memory(space=str(workspace), settings=SETTINGS) as engine:
            done = await engine.undo(session_of(workspace))
            assert done.undone is not None
            return done.undone.number

    return asyncio.run(undone())


def shown_by_pi(workspace: Path) -> str:
    """What pi would show of the transcript."""
    path = transcript_file(str(workspace), session_of(workspace))
    return str(build_context(read_session_file(path).entries).messages)


def told(events: list[Any]) -> str:
    return "\n".join(one.text for one in of(events, Told))


def test_a_compaction_that_was_undone_in_the_store_is_undone_in_the_transcript(home: Path) -> None:
    talk(home, *TALK, "/compact", "on", "/compact")
    assert "2 compactions in effect" in told(talk(home, "/status"))
    assert undo_in_the_store(home) == 2
    assert "1 compactions in effect" in told(talk(home, "/status"))
    assert undo_in_the_store(home) == 1
    assert TALK[0] not in shown_by_pi(home)
    assert "0 compactions in effect" in told(talk(home, "/status"))
    assert TALK[0] in shown_by_pi(home), "pi shows what the agent shows"
    assert "Nothing was undone" in told(talk(home, "/undo"))


def test_an_undo_whose_process_ended_halfway_is_finished(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: SessionTranscript) -> None:
        raise KeyboardInterrupt

    talk(home, *TALK, "/compact")
    with monkeypatch.context() as patch:
        patch.setattr(SessionTranscript, "append_undo", dies)
        with pytest.raises(KeyboardInterrupt):
            talk(home, "/undo")
    assert TALK[0] not in shown_by_pi(home)
    talk(home, "on")
    assert TALK[0] in shown_by_pi(home)
    assert "The last compaction is undone" in told(talk(home, "/compact", "/undo"))


def _killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedModel]:
    """The models that the settings name: opening has to close them."""
    made: list[ScriptedModel] = []

    def choose(*_: Any) -> ScriptedModel:
        made.append(Talker())
        return made[-1]

    monkeypatch.setattr(opening, "choose_model", choose)
    return made


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    closed: list[Engine] = []
    real = Engine.close

    async def close(self: Engine) -> None:
        await real(self)
        closed.append(self)

    monkeypatch.setattr(Engine, "close", close)
    return closed


async def _opened(workspace: Path) -> None:
    async with open_agent(workspace, settings=SETTINGS):
        pass


async def test_where_the_transcript_is_taken_everything_else_is_closed(
    home: Path, models: list[ScriptedModel], engines: list[Engine]
) -> None:
    async with open_agent(home, model=Talker(), settings=SETTINGS):
        with pytest.raises(TranscriptLocked):
            await _opened(home)
        assert len(engines) == 1
        assert models[0].closed


def test_an_agent_that_cannot_be_made_leaves_nothing_open(
    home: Path, models: list[ScriptedModel], engines: list[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "Agent", _killed)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(_opened(home))
    assert len(engines) == 1
    assert models[0].closed
    asyncio.run(_opened(home))  # the transcript is free again


def test_a_memory_that_does_not_close_well_keeps_nothing_else_open(
    home: Path, models: list[ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Engine) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "close", fails)
        with pytest.raises(OSError, match="the disk is gone"):
            asyncio.run(_opened(home))
    assert models[0].closed


def test_a_server_that_does_not_state_its_window_holds_nobody_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Talker):
        async def stated_window(self) -> int | None:
            await asyncio.sleep(60)
            return None

    monkeypatch.setattr(opening, "WINDOW_SECONDS", 0.05)
    events = asyncio.run(said_in(home, "Hi", Slow(), settings=QUIET))
    [report] = [one.report for one in of(events, Prepared)]
    assert report.window_source == "assumed"


@pytest.mark.parametrize(
    ("number", "made", "cuts", "undone"),
    [
        (1, 1, [], True),
        (1, 1, [(1, 0)], False),
        (1, 0, [], False),  # the store is away, or is another one
        (1, 2, [(2, 1)], False),  # it lies behind the next, whose edit alone is kept
        (1, 2, [(2, 0)], True),  # it was undone before the next was made
        (2, 3, [(1, 0), (3, 1)], True),
        (1, 3, [(1, 0), (3, 1)], False),
    ],
)
def test_which_compactions_the_engine_no_longer_shows(
    number: int, made: int, cuts: list[tuple[int, int]], undone: bool
) -> None:
    edits = [
        Cut(
            anchor=EntryKey(f"key-{at}"),
            summary="",
            stage="compact",
            reason=NOT_RUN,
            turn=at,
            number=at,
            before=before,
        )
        for at, before in cuts
    ]
    state = SessionState(compactions=made, edits=tuple(edits))
    assert is_undone_elsewhere(number, state) is undone
