"""What a block in the view says already is not recalled again; what was cut can be recalled."""

from pathlib import Path
from typing import Any

from recollect import open_memory
from recollect.core.engine.session import Context

SETTINGS = {"recall.embedder": "none"}
HERON = "the heron of Quillhaven is called Balthazar and sleeps on the crane"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def shown(context: Context) -> str:
    return "\n".join(str(message["content"]) for message in context.request["messages"])


async def test_what_pruning_cut_from_a_result_can_be_recalled(tmp_path: Path) -> None:
    settings = {
        **SETTINGS,
        "pruning.mode": "aggressive",
        "pruning.min_prunable_tool_chars": 100,
        "pruning.keep_last_assistants": 1,
    }
    memory = open_memory(store=tmp_path / "m.db", window_tokens=8_000, settings=settings)
    held: list[dict[str, Any]] = [user("read the configuration, please")]
    for number in range(14):
        said = "flux_capacitor_limit = 4711" if number == 1 else f"value_{number} = {number}"
        call = {"id": f"c{number}", "type": "function"}
        call["function"] = {"name": "read", "arguments": f'{{"path": "conf/{number}.ini"}}'}  # type: ignore[assignment]
        held += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"c{number}",
                "content": f"{said}\n" + f"# a comment on number {number}\n" * 60,
            },
        ]
    held += [assistant("done"), user("go on with the next ones then, please")]
    await memory.prepare("s", {"model": "gpt-4o", "messages": held})
    await memory.settle()
    held += [assistant("all right"), user("what was the flux_capacitor_limit?")]
    context = await memory.prepare("s", {"model": "gpt-4o", "messages": held})
    await memory.close()
    rows = context.request["messages"]
    results = "\n".join(str(row["content"]) for row in rows if row["role"] == "tool")
    all_of_it = shown(context)
    assert "4711" not in results, "the result was to be cut for this test"
    assert "flux_capacitor_limit = 4711" in all_of_it


async def test_a_block_that_stands_is_not_recalled_again(tmp_path: Path) -> None:
    memory = open_memory(store=tmp_path / "m.db", window_tokens=6_000, settings=SETTINGS)
    held = [user("we talk about the harbour")]
    for number in range(54):  # so that the view has room for a block
        told = HERON if number == 8 else f"note {number} on ropes, barges and tide tables " * 14
        held += [assistant(f"noted, number {number}"), user(told)]
        await memory.prepare("s", {"model": "gpt-4o", "messages": held})
    await memory.settle()
    counts = []
    for asked in ("what is the heron of Quillhaven called?", "is the heron called Balthazar?"):
        held += [assistant("yes"), user(asked)]
        context = await memory.prepare("s", {"model": "gpt-4o", "messages": held})
        counts.append(shown(context).count("sleeps on the crane"))
    await memory.close()
    assert counts == [1, 1]
