"""Anthropic's memory tool, answered from a space: as its own SDK answers, and kept as memory is."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.sizes import at_size

from recollect import Engine, open_blocking_memory, open_memory
from recollect.tools import anthropic_memory_tool
from recollect_bench.postgres_server import PostgresServer

sdk = pytest.importorskip("anthropic.lib.tools")
builtin = pytest.importorskip("anthropic.lib.tools._beta_builtin_memory_tool")

NOTES = "# Harbour\n\nThe crane Kestrel stands at berth seven.\nCall Ottoline first.\n"
ROUNDS = at_size(ci=6, full=40)
KEY = "AKIA" + "Q3EGRZ7YWVT5N2KD"
COMMANDS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {"command": "view", "path": "/memories/none.md"},
    {"command": "create", "path": "/memories/harbour.md", "file_text": NOTES},
    {"command": "create", "path": "/memories/harbour.md", "file_text": "again"},
    {"command": "create", "path": "/memories/people/a.b.md", "file_text": "Ann\n\tBob\r\n"},
    {"command": "create", "path": "/memories/people/deep/down/x", "file_text": ""},
    {"command": "create", "path": "/memories/.hidden", "file_text": "h"},
    {"command": "create", "path": "/memories/Zürich ☂.md", "file_text": "ä" * 1500},
    {"command": "view", "path": "/memories"},
    {"command": "view", "path": "/memories/people"},
    {"command": "view", "path": "/memories/harbour.md"},
    {"command": "view", "path": "/memories/harbour.md", "view_range": [3, 4]},
    {"command": "view", "path": "/memories/harbour.md", "view_range": [2, -1]},
    *(
        {"command": "view", "path": "/memories/harbour.md", "view_range": lines}
        for lines in ([0, 2], [3, 99], [9, 12], [4, 2], [-5, 1], [1, -3], [1, 0])
    ),
    {"command": "view", "path": "/memories/people/a.b.md"},
    {"command": "create", "path": "/memories/blank.md", "file_text": "\n\nIn\n\n\n"},
    *(
        {"command": "insert", "path": "/memories/blank.md", "insert_line": at,
         "insert_text": text}
        for at, text in ((0, "\n"), (4, "Mid\n\n"), (7, "\n\nEnd"), (10, "\n\n"))
    ),
    {"command": "view", "path": "/memories/blank.md"},
    {"command": "delete", "path": "/memories/blank.md"},
    {
        "command": "str_replace",
        "path": "/memories/harbour.md",
        "old_str": "berth seven",
        "new_str": "berth nine\nsince May",
    },
    {"command": "str_replace", "path": "/memories/harbour.md", "old_str": "x9", "new_str": "y"},
    {"command": "str_replace", "path": "/memories/harbour.md", "old_str": "a", "new_str": "y"},
    {"command": "str_replace", "path": "/memories/none", "old_str": "a", "new_str": "y"},
    {"command": "str_replace", "path": "/memories/people", "old_str": "a", "new_str": "y"},
    {"command": "insert", "path": "/memories/harbour.md", "insert_line": 0, "insert_text": "Top\n"},
    {"command": "insert", "path": "/memories/harbour.md", "insert_line": 99, "insert_text": "x"},
    {"command": "insert", "path": "/memories/people/deep/down/x", "insert_line": 0,
     "insert_text": "first"},
    {"command": "view", "path": "/memories/people/deep/down/x"},
    {"command": "view", "path": "/memories/harbour.md"},
    {"command": "rename", "old_path": "/memories/people", "new_path": "/memories/crew"},
    {"command": "rename", "old_path": "/memories/none", "new_path": "/memories/some"},
    {"command": "rename", "old_path": "/memories/crew", "new_path": "/memories/harbour.md"},
    {"command": "rename", "old_path": "/memories/harbour.md", "new_path": "/memories/crew/h.md"},
    {"command": "view", "path": "/memories/crew/h.md"},
    {"command": "view", "path": "/memories/people/a.b.md"},
    {"command": "delete", "path": "/memories/crew/a.b.md"},
    {"command": "delete", "path": "/memories/crew/deep"},
    {"command": "delete", "path": "/memories/none"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/memories"},
]  # fmt: skip
OUTSIDE = (
    *("/etc/passwd", "memories/x", "/memoriesx/x", "/memories/../x", "/memories/a/../../x"),
    *("/memories/./x", "/memories//x", "/memories/..", "/memories/%2e%2e/x", "/memories/..\\x"),
    *("/memories/a\x00b", "/memories/a\nb", "../memories/x", "", "/memories/" + "x" * 500),
)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> str | None:
    if request.param == "sqlite":
        return None
    server: PostgresServer = request.getfixturevalue("server")
    return asyncio.run(server.migrated_database()).app_url


def opened(place: str | None = None, **more: Any) -> Engine:
    quiet = {"jobs.in_process": False, "recall.embedder": "none", "recall.scope": "space"}
    return open_memory(space="user-17", store=place, settings=quiet, **more)


def _without_folder_sizes(text: str) -> str:
    """A folder's size is its file system's matter."""
    return re.sub(r"(?m)(?<=:\n)[0-9.]+[BKMG]\t|^[0-9.]+[BKMG]\t(?=.*/$)", "", text)


async def test_it_answers_as_the_sdk_s_own_tool_does(place: str | None, tmp_path: Path) -> None:
    own = builtin.BetaLocalFilesystemMemoryTool(str(tmp_path / "own"))
    async with opened(place) as memory:
        ours = anthropic_memory_tool(memory)
        assert ours.definition() == own.to_dict()
        for command in COMMANDS:
            answer = await ours.call(command)
            try:
                told = False, _without_folder_sizes(str(own.call(command)))
            except sdk.ToolError as error:
                told = True, str(error)
            text = answer.text if answer.is_error else _without_folder_sizes(answer.text)
            assert (answer.is_error, text) == told, command


@pytest.mark.parametrize("path", OUTSIDE)
async def test_no_path_leads_out(tmp_path: Path, path: str) -> None:
    async with opened() as memory:
        tool = anthropic_memory_tool(memory)
        for given in (
            {"command": "view", "path": path},
            {"command": "create", "path": path, "file_text": "x"},
            {"command": "delete", "path": path},
            {"command": "rename", "old_path": "/memories/x", "new_path": path},
        ):
            answer = await tool.call(given)
            assert answer.is_error, given
        assert (await memory.stats()).segments == 0


@pytest.mark.parametrize(
    "given",
    [
        "no JSON",
        b"[1]",
        {},
        {"command": "format", "path": "/memories"},
        {"command": "view"},
        {"command": "view", "path": 7},
        {"command": "view", "path": "/memories/a", "view_range": [1]},
        {"command": "view", "path": "/memories/a", "view_range": ["1", 2]},
        {"command": "create", "path": "/memories/a"},
        {"command": "create", "path": "/memories/a", "file_text": "x" * 200_001},
        {"command": "create", "path": "/memories", "file_text": "x"},
        {"command": "insert", "path": "/memories/a", "insert_line": "1", "insert_text": "x"},
        {"command": "create", "path": "/memories/file/below", "file_text": "x"},
        {"command": "rename", "old_path": "/memories/file", "new_path": "/memories/file/x"},
    ],
)
async def test_what_cannot_be_done_is_an_answer(given: Any) -> None:
    async with opened() as memory:
        tool = anthropic_memory_tool(memory)
        first = {"command": "create", "path": "/memories/file", "file_text": "x"}
        assert not (await tool.call(json.dumps(first))).is_error
        answer = await tool.call(given)
        assert answer.is_error
        assert answer.text


async def test_a_file_is_found_masked_and_forgotten(place: str | None, tmp_path: Path) -> None:
    async with opened(place) as memory:
        tool = anthropic_memory_tool(memory)
        text = f"{NOTES}aws_access_key_id = {KEY}\n"
        made = {"command": "create", "path": "/memories/harbour.md", "file_text": text}
        assert not (await tool.call(made)).is_error
    async with opened(place) as memory:  # another process, another session
        tool = anthropic_memory_tool(memory)
        seen = await tool.call({"command": "view", "path": "/memories/harbour.md"})
        assert "Kestrel" in seen.text
        assert KEY not in seen.text
        found = await memory.search("Where does the crane Kestrel stand?")
        assert any("berth seven" in one.text for one in found.passages)
        asked = [{"role": "user", "content": "At which berth does the crane Kestrel stand?"}]
        context = await memory.prepare("new", {"model": "m", "messages": asked})
        assert "berth seven" in json.dumps(context.request)
        held = await memory.parts.store.page()
        assert not any(KEY in f"{one.segment.text}{one.segment.foreign}" for one in held)
        await memory.forget(sessions=["file:/memories/harbour.md"])
        gone = await tool.call({"command": "view", "path": "/memories/harbour.md"})
        assert gone.is_error
        assert not (await tool.call(made)).is_error, "its name may be used again"
        await memory.forget(matching="Ottoline")
        assert (await tool.call(made)).is_error, "what was forgotten stays so"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


async def test_two_at_once_lose_no_change() -> None:
    async with opened() as memory:
        tool = anthropic_memory_tool(memory)
        await tool.call({"command": "create", "path": "/memories/a", "file_text": ""})
        add = {"command": "insert", "path": "/memories/a", "insert_line": 0}
        answers = await asyncio.gather(
            *(tool.call({**add, "insert_text": f"{n}"}) for n in range(8))
        )
        assert not any(answer.is_error for answer in answers)
        seen = (await tool.call({"command": "view", "path": "/memories/a"})).text
        assert sorted(re.findall(r"\t(\d)$", seen, re.M)) == [str(n) for n in range(8)]


async def test_two_processes_at_once_lose_no_change(place: str | None) -> None:
    """Two engines edit one file, as two agents of one user do: every change of both is kept."""

    async def edit(tool: Any, name: str) -> None:
        for number in range(ROUNDS):
            add = {"path": "/memories/a", "insert_line": 0, "insert_text": f"{name}{number}"}
            answer = await tool.call({"command": "insert", **add})
            assert not answer.is_error, answer.text
            change = {"old_str": f"{name}{number}\n", "new_str": f"{name}-{number}\n"}
            answer = await tool.call({"command": "str_replace", "path": "/memories/a", **change})
            assert not answer.is_error, answer.text

    async with opened(place) as one, opened(place) as two:
        tools = [anthropic_memory_tool(memory) for memory in (one, two)]
        await tools[0].call({"command": "create", "path": "/memories/a", "file_text": ""})
        await asyncio.gather(edit(tools[0], "x"), edit(tools[1], "y"))
        seen = (await tools[0].call({"command": "view", "path": "/memories/a"})).text
        wanted = sorted(f"{name}-{number}" for name in "xy" for number in range(ROUNDS))
        assert sorted(re.findall(r"\t(\S+)$", seen, re.M)) == wanted
        assert (await one.stats()).segments == 1, "and nothing of an earlier one is left"


async def test_of_two_who_create_or_move_the_same_file_one_is_refused(place: str | None) -> None:
    async with opened(place) as one, opened(place) as two:
        tools = [anthropic_memory_tool(memory) for memory in (one, two)]
        for number in range(ROUNDS):
            path = f"/memories/{number}"
            made = await asyncio.gather(
                *(
                    tool.call({"command": "create", "path": path, "file_text": name})
                    for tool, name in zip(tools, "xy", strict=True)
                )
            )
            assert sorted(answer.is_error for answer in made) == [False, True], made
            seen = (await tools[0].call({"command": "view", "path": path})).text
            assert seen.endswith("\tx" if made[1].is_error else "\ty")
            edited, _ = await asyncio.gather(
                tools[0].call(
                    {"command": "insert", "path": path, "insert_line": 0, "insert_text": "z"}
                ),
                tools[1].call({"command": "rename", "old_path": path, "new_path": f"{path}.md"}),
            )
            texts = [
                (await tools[0].call({"command": "view", "path": one_path})).text
                for one_path in (path, f"{path}.md")
            ]
            assert edited.is_error or any("\tz" in text for text in texts)


def test_the_blocking_tool_does_the_same(tmp_path: Path) -> None:
    with open_blocking_memory(store=tmp_path / "m.db", settings={"jobs.in_process": False}) as held:
        tool = anthropic_memory_tool(held)
        assert tool.definition() == {"type": "memory_20250818", "name": "memory"}
        made = tool.call({"command": "create", "path": "/memories/a.md", "file_text": "x"})
        assert made.text == "File created successfully at: /memories/a.md"
        assert "\tx" in tool.call({"command": "view", "path": "/memories/a.md"}).text
