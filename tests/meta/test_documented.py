"""What a user can name stands in the docs, and what the docs name exists."""

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tools import reference

import recollect
from recollect import errors
from recollect.cli import main
from recollect.system.config import setting_keys
from recollect.system.config.fields import read_value
from recollect.system.config.keys import setting_groups
from recollect.system.config.load import PRESETS

ROOT = Path(__file__).parent.parent.parent
DOCS = {
    path.relative_to(ROOT / "docs").as_posix(): path.read_text()
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "docs/llms.txt"]
}


def test_the_generated_pages_are_up_to_date() -> None:
    pages = reference.pages()
    stale = [name for name, text in pages.items() if (ROOT / "docs" / name).read_text() != text]
    assert stale == [], "run: python -m tools.reference"


def test_every_page_is_in_the_navigation() -> None:
    listed = {page for _, _, page in reference.navigation()}
    assert listed == {name for name in DOCS if not re.match(r"decisions/\d|llms", name)}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    measured = (ROOT / "docs/contributing/benchmarks.md").read_text().splitlines()
    rows = re.findall(
        r"^\| \[(.+?)\]\(docs/contributing/benchmarks\.md#.+?\) \| (\S+) \| (\S+) .*\|$",
        (ROOT / "README.md").read_text(),
        flags=re.MULTILINE,
    )
    starts = (
        "| questions with all their evidence, window of 16,000",
        "| LoCoMo, chats",
        "| 128,000",
    )
    assert len(rows) == len(starts)
    for (text, ours, other), start in zip(rows, starts, strict=True):
        row = next(line for line in measured if line.startswith(start))
        cells = [cell.strip() for cell in row.split("|")]
        assert ours in cells, row
        assert other in cells, row
        named = re.search(r"(\S+) times the cost", text)
        assert named is None or named[1] in cells, row


def test_every_public_name_has_a_docstring() -> None:
    for name in recollect.__all__:
        assert name == "__version__" or inspect.getdoc(getattr(recollect, name)), name


def test_the_exported_names_are_these() -> None:
    """The public surface; a name that appears or goes is a decision."""
    assert set(recollect.__all__) == {
        *("Answer", "BlockingEngine", "Certificate", "CompactionResult", "Context", "Engine"),
        *("Fact", "FactFilter", "Model", "Observation", "Prompt", "RecollectError", "Report"),
        *("Session", "SessionState", "SessionSummary", "Settings", "Stats", "StoredMessage"),
        *("__version__", "load_settings", "open_blocking_memory", "open_memory", "read_state"),
        "write_state",
    }


def test_the_methods_of_a_memory_are_these() -> None:
    """A method that appears or goes is a decision, too."""
    assert {name for name in dir(recollect.Engine) if not name.startswith("_")} == {
        *("prepare", "preview", "observe", "watch", "ingest", "session", "end"),
        *("messages", "sessions", "search", "facts", "stats", "forget", "delete_space"),
        *("compact", "undo", "flushed", "on", "settle", "close"),
    }


def test_every_error_is_drawn() -> None:
    names = [name for name, value in vars(errors).items() if inspect.isclass(value)]
    assert "RecollectError" in names
    assert [name for name in names if name not in (errors.__doc__ or "")] == []


def anchors(text: str) -> list[str]:
    """The anchors of a page's headings, which are the same on GitHub and in the built site."""
    headings = re.findall(r"^#+ (.+)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one).lower() for one in headings]
    return [re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", one).strip()) for one in plain]


def test_links_and_anchors_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), ROOT / "bench/README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", text):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor:
                assert anchors(there.read_text()).count(anchor) == 1, f"{page}: {target}#{anchor}"


def test_every_behaviour_names_a_test_that_exists() -> None:
    rows = re.findall(r"^\| .+ \| `(.+)::(\w+)` \|$", DOCS["contributing/regressions.md"], re.M)
    assert rows
    for file, name in rows:
        assert re.search(rf"^ *(?:async )?def {name}\(", (ROOT / file).read_text(), re.M), name


def test_decisions_have_one_shape_and_name_their_test() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert records
    for record in records:
        text = record.read_text()
        assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.M) == ["Choice", "Why", "Cost", "Test"], (
            record
        )
        for held in re.findall(r"`([^`]+)`", text.partition("**Test.**")[2]):
            assert (ROOT / held).exists(), f"{record.name}: {held}"


GUIDES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = ("", "sh", "bash", "console", "text")
SETTING = re.compile(r"`([a-z_]+(?:\.[a-z_]+)+)(?: = ([^`]+))?`")
NOT_SETTINGS = (
    "session.state",
    ".py",
    ".md",
    ".json",
    ".jsonl",
    ".toml",
    ".db",
    ".bin",
    ".log",
    ".sock",
)


def command_lines(text: str) -> Iterator[str]:
    """What a reader could type: lines of blocks, and commands in the running text."""
    for language, block in BLOCK.findall(text):
        if language not in SHELLS:
            continue
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if re.match(r"(?:\$ )?recollect ", line):
                yield line.removeprefix("$ ")
    for line in re.findall(r"`(recollect [^`]+)`", text):
        yield " ".join(line.split())


def wrong_in(line: str) -> str:
    """Why the command line is none of ours; empty where it is one."""
    # a comment, another program behind it, and the marks of a usage line are not typed
    typed = re.split(r"\s{2,}|\s#|\s[|>&]|;", line.replace("\u2026", " ").strip())[0]
    words = shlex.split(re.sub(r"[\[\]]", " ", typed))[1:]
    command: click.Command = main
    context = click.Context(main, info_name="recollect")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if found is None:
            return f"there is no {words[0]!r}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context, info_name=command.name)
    try:
        command.make_parser(context).parse_args(list(words))
    except click.BadOptionUsage:
        return ""  # an option is only named, without its value
    except click.UsageError as problem:
        return problem.format_message()
    return ""


@pytest.mark.parametrize("page", sorted(GUIDES))
def test_every_command_line_of_the_docs_can_be_typed(page: str) -> None:
    wrong = {line: why for line in command_lines(GUIDES[page]) if (why := wrong_in(line))}
    assert wrong == {}


def test_a_command_line_that_is_wrong_is_noticed() -> None:
    assert wrong_in("recollect memory search webhook --limit 5   # a comment") == ""
    assert "no 'chatter'" in wrong_in("recollect chatter")
    assert "no 'searches'" in wrong_in("recollect memory searches x")
    assert "--limits" in wrong_in("recollect memory search x --limits 5")


@pytest.mark.parametrize("page", sorted(GUIDES))
def test_every_setting_that_the_docs_name_exists(page: str) -> None:
    groups = set(setting_groups())
    tops = {path.partition(".")[0] for path in groups}
    for name, value in SETTING.findall(GUIDES[page]):
        if name.partition(".")[0] not in tops or name.endswith(NOT_SETTINGS):
            continue
        assert name in setting_keys() or name in groups, name
        if value and name in setting_keys():
            read_as(name, value)


def read_as(name: str, value: str) -> object:
    return read_value(setting_keys()[name].hint, value.strip().strip('"'), text=True)


def quoted_defaults(text: str) -> Iterator[tuple[str, str]]:
    """Settings with a number beside them: "`a.b` (2,000)", "`a.b` is 5 by default"."""
    yield from re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`(?: of the window)? \((\d[\d,.]*%?)", text)
    yield from re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)` is (\d[\d,.]*%?) by default", text)


@pytest.mark.parametrize("page", sorted(GUIDES))
def test_a_default_beside_a_setting_is_the_codes(page: str) -> None:
    for name, number in quoted_defaults(GUIDES[page]):
        if name in setting_keys() and not page.endswith("/settings.md"):
            plain = float(number.rstrip("%.").replace(",", ""))
            said = plain / 100 if number.endswith("%") else plain
            assert setting_keys()[name].default == pytest.approx(said), name


def test_presets_are_called_in_the_docs_as_in_the_code() -> None:
    for page, text in GUIDES.items():
        for name in re.findall(r'preset = "([a-z]+)"', text):
            assert name in PRESETS, f"{page}: {name}"
