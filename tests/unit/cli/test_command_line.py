"""What the command line says where a command comes with another package."""

import asyncio
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from tests.integration.long_talk import SESSION, Talk, grown, opened, scribe
from tests.trusted_settings import write_trusted

from recollect import cli
from recollect.cli import main
from recollect.cli.facts import id_chars
from recollect.core.values.fact import Fact, FactId
from recollect.core.values.message import CallId, Image, Text, ToolCall, ToolResult
from recollect.core.values.model import Prompt
from recollect.errors import ModelUnavailable
from recollect.hosts.gateway.summaries import ClientModel, CrossingRequest, DaySpending, crossing
from recollect.hosts.gateway.upstream import Upstreams
from recollect.hosts.inspect.text import clip_text, percent
from recollect.hosts.inspect.turns import EXCERPT_CHARS, excerpt_of, format_excerpt
from recollect.system.config import Settings
from recollect.system.plain_text import plain_line, short_tokens


def test_without_benches_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    result = CliRunner().invoke(cli.main, ["bench", "turn"])
    assert result.exit_code == 2
    assert "install recollect-bench" in result.output


def test_the_list_of_commands_tells_them_all_and_imports_none() -> None:
    code = "from recollect.cli import main; main(['--help'])"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "msgspec", "rich", "recollect.system.config"} & set(done.stderr.split())
    lines = {name: line for section in cli.SECTIONS.values() for name, line in section.items()}
    assert set(lines) == {*cli.COMMANDS, "bench"} - {"hook"}, "agents run hooks, people do not"
    for line in lines.values():
        assert line in done.stdout


def test_numbers_in_help_can_be_typed() -> None:
    """A typographic minus, copied from help, is refused as no number."""

    def read(command: click.Command, name: str) -> None:
        context = click.Context(command, info_name=name)
        assert "\u2212" not in command.get_help(context), name
        if isinstance(command, click.Group):
            for each in command.list_commands(context):
                found = command.get_command(context, each)
                assert found is not None
                read(found, f"{name} {each}")

    read(cli.main, "recollect")


IDS = st.lists(st.text(alphabet="01a", min_size=1, max_size=12), unique=True, max_size=12)


@given(IDS)
def test_a_short_id_means_one_fact(ids: list[str]) -> None:
    facts = [Fact(id=FactId(one), type="config", content="", at=0.0) for one in ids]
    shown = {one[: id_chars(facts)] for one in ids}
    assert len(shown) == len(ids)


KEYLESS = """
[models]
provider = "anthropic"
main = "claude-x"
key_variable = "NO_SUCH_KEY"

[recall]
embedder = "remote"

[recall.remote]
provider = "openai"
key_variable = "NO_SUCH_KEY"
"""


def test_undo_needs_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def compacted() -> None:
        async with opened(tmp_path / "m.db", scribe()) as memory:
            await grown(memory, Talk(), 9)
            assert (await memory.compact(SESSION)).compacted

    asyncio.run(compacted())
    write_trusted(KEYLESS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    arguments = ["undo", SESSION, "--store", str(tmp_path / "m.db"), "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["undone"] is True


def test_two_gateways_share_what_was_spent_and_what_was_given_back(tmp_path: Path) -> None:
    first, second = DaySpending(tmp_path / "day.json"), DaySpending(tmp_path / "day.json")
    for spending in (first, second) * 5:
        assert spending.charge(17_500, max_tokens=100_000)
        assert spending.charge(5_000 - 17_500)
    assert not first.charge(60_000, max_tokens=100_000)
    assert second.charge(50_000, max_tokens=100_000)
    assert not first.charge(1, max_tokens=100_000)


def test_what_is_given_back_after_midnight_makes_no_debt(tmp_path: Path) -> None:
    spending = DaySpending(tmp_path / "day.json")
    spending.charge(-5_000)
    assert spending.charge(100, max_tokens=100)
    assert not spending.charge(1, max_tokens=100)


async def test_summaries_at_the_clients_expense_have_a_limit_without_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path))
    assert DaySpending().charge(999_999)
    with pytest.raises(ModelUnavailable, match="1,000,000 tokens per day"):
        crossing.set(CrossingRequest(format="anthropic", model="m", headers=[]))
        model = ClientModel(Upstreams(Settings().gateway), day_tokens=None)
        await model.ask(Prompt(text="summarise", max_output_tokens=100, purpose="summary"))


_ANY_TEXT = st.text(
    st.one_of(st.characters(), st.sampled_from("\x1b\x9b[]31m;\x07\u202e\u200d\ufe0f\ud83d \n")),
    max_size=80,
)


@given(_ANY_TEXT)
def test_a_plain_line_is_one_printable_encodable_line(text: str) -> None:
    line = plain_line(text)
    assert not {unicodedata.category(sign) for sign in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    line.encode()
    assert line == " ".join(line.split())
    assert plain_line(line) == line


@given(_ANY_TEXT, st.integers(0, 40))
def test_clipping_keeps_within_its_cells(text: str, cells: int) -> None:
    line = plain_line(text)
    assert cell_len(clip_text(line, cells)) <= cells
    if cell_len(line) <= cells:
        assert clip_text(line, cells) == line


def test_excerpt_is_masked_before_it_is_clipped_and_a_message_is_known_by_its_first_words() -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    for lead in ("", "x " * 70, "x " * 76):
        shown = format_excerpt(f"{lead}token {secret} after")
        assert secret[:12] not in shown
        assert len(shown) <= EXCERPT_CHARS
    image = Image(media_type="image/png", data="AAAA")
    assert excerpt_of([Text(text="  \n"), Text(text="hello\nthere")]) == "hello there"
    assert excerpt_of([ToolCall(id=CallId("1"), name="read", arguments='{"p":1}')]).startswith(
        "read {"
    )
    assert excerpt_of([ToolResult(call_id=CallId("1"), content=(image,))]) == "[image]"
    assert excerpt_of([]) == ""
    told = [short_tokens(n) for n in (0, 999, 8_000, 9_600, 128_000, 999_999, 1_048_576)]
    assert told == ["0", "999", "8k", "9.6k", "128k", "1M", "1.05M"]
    assert [percent(n, 1000) for n in (0, 1, 10, 500, 1000)] == ["0%", "<1%", "1%", "50%", "100%"]
    assert percent(3, 0) == "0%"
