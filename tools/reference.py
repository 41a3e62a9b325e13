"""`python -m tools.reference [--check]`: write the generated pages of docs/ from the code.

Commands come from click, settings from their declarations, the HTTP API from its OpenAPI document,
Python names, errors and report reasons from signatures and docstrings. Pages of figures and charts
come from docs/contributing/figures. `--check` writes nothing and fails if a page is stale. `--full
FILE` writes every page of the site into one file for models.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, Final, get_args

import click

import recollect
from recollect import errors
from recollect.cli import SECTIONS
from recollect.cli import main as command_line
from recollect.core.values import reason
from recollect.hosts.service.api import openapi
from recollect.system.config.fields import expects, setting_text
from recollect.system.config.keys import Key, setting_groups, setting_keys
from recollect.system.config.load import OPENCLAW
from recollect.system.config.openclaw import OPENCLAW_KEYS
from recollect.system.config.settings import Settings
from recollect_bench.charts import draw_docs
from recollect_bench.scale import capacity
from tools import figures

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = ROOT / "docs"
MARK: Final = "<!-- The rest of this page is generated: run `just docs`. -->"
CLIP_CHARS, WIDTH = 44, 100
SUMMARY: Final = "Keeps LLM agents inside their context window, and remembers what no longer fits."

PYTHON: Final = {
    "Open a memory": ("open_memory", "open_blocking_memory", "load_settings", "Settings"),
    "Use it": ("Engine", "BlockingEngine", "Session", "Context"),
    "Results": ("Report", "Observation", "CompactionResult"),
    "Stored data": ("SessionSummary", "StoredMessage", "Stats", "Certificate"),
    "Facts": ("Fact", "FactFilter"),
    "Models": ("Model", "Prompt", "Answer"),
    "State between processes": ("SessionState", "write_state", "read_state"),
    "Errors": ("RecollectError",),
}
NO_MEMBERS: Final = ("Settings", "SessionState", "BlockingEngine", "MemoryClient")


def main(given: list[str]) -> int:
    """Write the pages, or with --check list those that are stale."""
    if "--full" in given:
        Path(given[given.index("--full") + 1]).write_text(full_text(), "utf-8")
        return 0
    old = {name: text for name, text in pages().items() if _read(name) != text}
    for name, text in old.items():
        if "--check" in given:
            print(f"docs/{name} is stale: run `just docs`")
        else:
            (DOCS / name).write_text(text, "utf-8")
    return int("--check" in given and bool(old))


def pages() -> dict[str, str]:
    """Every generated page, by its place in docs/; what precedes the mark is written by hand."""
    made = {
        "reference/cli.md": _cli(),
        "reference/settings.md": _settings(),
        "reference/openclaw-preset.md": _preset(),
        "reference/openclaw.md": _openclaw(),
        "reference/python-api.md": _python(),
        "reference/http-api.md": _http(),
        "reference/errors.md": _errors(),
        "decisions/index.md": _decisions(),
    }
    text = {}
    for name, lines in made.items():
        page = "\n".join([_read(name).partition(MARK)[0], MARK, "", *lines])
        text[name] = re.sub(r"\n{3,}", "\n\n", page).rstrip() + "\n"
    text["contributing/benchmarks.md"] = figures.benchmarks_page()
    text["operations/capacity.md"] = capacity.page(capacity.ScaleResult.read(figures.read("scale")))
    return {**text, **draw_docs(DOCS), "llms.txt": "\n".join(_llms(text)) + "\n"}


def _read(name: str) -> str:
    path = DOCS / name
    return path.read_text("utf-8") if path.exists() else ""


def _cell(text: object) -> str:
    """One line. Code with a bar is HTML: GitHub and the site escape it in different ways."""
    line = " ".join(str(text).split())
    return re.sub(r"`([^`]*\|[^`]*)`", _code_with_bar, line).replace("|", "\\|")


def _code_with_bar(found: re.Match[str]) -> str:
    return f"<code>{escape(found[1], quote=False).replace('|', '&#124;')}</code>"


def _table(head: str, rows: Iterable[tuple[object, ...]]) -> list[str]:
    made = [f"| {' | '.join(_cell(one) for one in row)} |" for row in rows]
    rule = "|" + "---|" * (head.count("|") + 1)
    return ["", f"| {head} |", rule, *made, ""] if made else [""]


def _cli() -> Iterator[str]:
    context = click.Context(command_line, info_name="recollect")
    for title, names in SECTIONS.items():
        yield f"## {title}"
        for name in names:
            command = command_line.get_command(context, name)
            if command is not None and name != "bench":
                yield from _command(command, context, name)


def _command(command: click.Command, parent: click.Context, name: str) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=name)
    path = context.command_path
    yield f"\n### {path}\n"
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        literal = "\b" in paragraph
        body = paragraph.replace("\b", "").strip("\n")
        yield f"```\n{textwrap.dedent(body)}\n```\n" if literal else f"{_cell(body)}\n"
    if not isinstance(command, click.Group):
        yield f"```\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```"
    options = [one.get_help_record(context) for one in command.params if one.name != "help"]
    yield from _table("option | meaning", [(f"`{a}`", b) for a, b in filter(None, options) if b])
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _command(found, context, child)


def setting_effects() -> dict[str, str]:
    """Return the effect of every setting by its dotted path: the string after its declaration."""
    groups = {"": Settings, **{f"{path}.": of for path, of in setting_groups().items()}}
    return {
        prefix + name.strip("`"): " ".join(about.split())
        for prefix, of in groups.items()
        for name, _, about in _fields(of)
        if about
    }


def _settings() -> Iterator[str]:
    groups = {"": "", **{name: of.__doc__ or "" for name, of in setting_groups().items()}}
    effects = setting_effects()
    for group, about in groups.items():
        keys = [key for key in setting_keys().values() if key.path.rpartition(".")[0] == group]
        if keys:
            yield f"## {f'`{group}`' if group else 'Top level'}\n\n{about}"
            yield from _table(
                "key | default | project | effect, and accepted values",
                [(*_row(key), f"{effects[key.path]} Accepts {expects(key.hint)}.") for key in keys],
            )


def _row(key: Key) -> tuple[object, ...]:
    return f"`{key.path}`", _value(key.default), key.project


def _value(value: object) -> str:
    text = setting_text(value)
    return f"`{text if len(text) <= CLIP_CHARS else text[: CLIP_CHARS - 1].rstrip() + '…'}`"


def _preset() -> Iterator[str]:
    keys = [key for key in setting_keys().values() if key.path in OPENCLAW]
    rows = [(f"`{key.path}`", _value(OPENCLAW[key.path]), _value(key.default)) for key in keys]
    yield from _table("key | openclaw | default", rows)
    yield "## Keys of an openclaw.json\n"
    both = [
        (f"`{f'{block}.{name}'.lstrip('.')}`", f"`{ours}`")
        for block, names in OPENCLAW_KEYS.items()
        for name, ours in names.items()
    ]
    yield from _table("key in openclaw.json | here", both)


OPENCLAW_DOCUMENTS: Final = {
    "000": "Memory-enhanced compaction",
    "001": "Conversation memory with smart trim (pull request 17129)",
    "002": "Compaction system",
    "003": "Compaction and memory internals",
    "004": "Memory and compaction",
}


def _openclaw() -> Iterator[str]:
    text = (ROOT / "tests/conformance/items.toml").read_text("utf-8")
    items = tomllib.loads(text)["items"]
    holding = sum(item["state"] == "holds" for item in items)
    yield f"{holding} of {len(items)} items hold, and {len(items) - holding} differ.\n"
    for document, title in OPENCLAW_DOCUMENTS.items():
        yield f"## {title}\n"
        rows = [
            (
                item["number"],
                item["item"],
                item.get("reason") or "holds",
                ", ".join(f"`{one.rpartition('::')[2]}`" for one in item.get("tests", ())),
            )
            for item in items
            if item["document"] == document
        ]
        yield from _table("item | OpenClaw | Recollect | test", rows)


def _python() -> Iterator[str]:
    named = {name for names in PYTHON.values() for name in names} | {"__version__"}
    assert named == set(recollect.__all__), named ^ set(recollect.__all__)
    for title, names in PYTHON.items():
        yield f"## {title}\n"
        for name in names:
            yield from _object(name, getattr(recollect, name))
    for module in ("recollect.tools", "recollect.client"):
        loaded = import_module(module)
        yield f"## {module}\n\n{_doc(loaded).partition(chr(10))[0]}\n"
        for name in getattr(loaded, "__all__", ["AsyncMemoryClient", "MemoryClient"]):
            yield from _object(name, getattr(loaded, name))


def _object(name: str, it: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if inspect.isclass(it):
        yield f"{_doc(it)}\n"
        if name not in NO_MEMBERS:
            yield from _table("field | type | meaning", _fields(it))
            yield from _methods(name, it)
    elif not inspect.isfunction(it):
        yield f"One of {', '.join(f'`{one}`' for one in get_args(it))}.\n"
    else:
        yield f"```python\n{_signature(it)}\n```\n\n{_doc(it)}\n"


def _doc(it: object) -> str:
    return inspect.getdoc(it) or ""


def _node(it: Any) -> Any:
    return ast.parse(textwrap.dedent(inspect.getsource(it))).body[0]


def _fields(of: type) -> Iterator[tuple[str, ...]]:
    if not dataclasses.is_dataclass(of):
        return
    body = _node(of).body
    for line, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            about = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
            if not line.target.id.startswith("_"):
                yield f"`{line.target.id}`", f"`{ast.unparse(line.annotation)}`", about


def _methods(owner: str, of: type) -> Iterator[str]:
    seen: dict[str, Any] = {}
    for base in reversed(of.__mro__):
        if base.__module__.startswith("recollect") and not issubclass(base, Exception):
            seen.update({k: v for k, v in vars(base).items() if not k.startswith("_")})
    for name, it in seen.items():
        plain = it.fget if isinstance(it, property) else getattr(it, "__func__", it)
        if inspect.isfunction(plain) and _doc(plain):
            head = name if isinstance(it, property) else _signature(plain)
            yield f"#### {owner}.{name}\n\n```python\n{head}\n```\n\n{_doc(plain)}\n"


def _signature(it: Any) -> str:
    made = _node(it)
    made.decorator_list, made.body = [], [ast.Expr(ast.Constant(...))]
    made.args.args = [one for one in made.args.args if one.arg != "self"]
    text = re.sub(r"(?<=[\w\]])=(?=[\w'(\[-])", " = ", ast.unparse(made).partition(":\n")[0])
    if len(text) <= WIDTH:
        return text
    head, _, rest = text.partition("(")
    inside, _, result = rest.rpartition(")")
    parts = re.split(r", (?=[\w*]+(?::|,|=|$))", inside)
    return f"{head}(\n" + "".join(f"    {one},\n" for one in parts) + f"){result}"


def _http() -> Iterator[str]:
    document = openapi()
    schemas = document["components"]["schemas"]
    used: list[str] = []
    shared: dict[str, str] = {}
    body: list[str] = []
    for path, methods in document["paths"].items():
        for method, of in methods.items():
            body += [f"## {of['operationId']}\n", f"`{method.upper()} {path}`\n", of["summary"]]
            body += [of.get("description", "Needs no key."), ""]
            given = of.get("parameters", [])
            shared |= {one["name"]: one["description"] for one in given if one["in"] == "header"}
            asked = [one for one in given if one["in"] == "query"]
            body += _table("query | meaning", [(f"`{x['name']}`", x["description"]) for x in asked])
            for title, content in (
                ("body", of.get("requestBody")),
                ("answer", of["responses"].get("200")),
            ):
                name = _schema_name(content)
                if name:
                    body += _schema(title, schemas[name], used)
    yield from _table("header | meaning", [(f"`{a}`", b) for a, b in shared.items()])
    yield from [*body, "## Objects\n"]
    for name in used:
        yield f"### {name}\n\n{schemas[name].get('description', '')}"
        yield from _schema("field", schemas[name], used)


def _schema_name(content: dict[str, Any] | None) -> str:
    of = ((content or {}).get("content") or {}).get("application/json", {}).get("schema", {})
    return str(of.get("$ref", "")).rpartition("/")[2]


def _schema(title: str, schema: dict[str, Any], used: list[str]) -> list[str]:
    needed = schema.get("required", ())
    rows = []
    for name, of in schema.get("properties", {}).items():
        mark = " (required)" if title == "body" and name in needed else ""
        rows.append((f"`{name}`{mark}", _type(of, used), of.get("description", "")))
    return _table(f"{title} | type | meaning", rows)


def _type(of: dict[str, Any], used: list[str]) -> str:
    if "$ref" in of:
        name = str(of["$ref"]).rpartition("/")[2]
        if name not in used:
            used.append(name)
        return f"[{name}](#{name.lower()})"
    if "anyOf" in of:
        return " or ".join(_type(one, used) for one in of["anyOf"])
    if "enum" in of:
        return ", ".join(f"`{one}`" for one in of["enum"])
    if of.get("type") == "array" and "items" in of:
        return f"array of {_type(of['items'], used)}"
    kind = of.get("type", "any")
    return kind if isinstance(kind, str) else " or ".join(kind)


def _errors() -> Iterator[str]:
    ours = [of for of in vars(errors).values() if inspect.isclass(of)]
    names = [(f"`{of.__name__}`", f"`{of.__mro__[1].__name__}`", _doc(of)) for of in ours]
    yield "## Errors\n"
    yield from _table("error | is a | when, and what to do", names)
    yield "## Reasons\n"
    rows: list[tuple[object, ...]] = []
    title = "any stage"
    for line in inspect.getsource(reason.Cause).splitlines():
        if comment := re.match(r"    # (.+)", line):
            yield from [f"### {title.capitalize()}", *_table("cause | sentence", rows)]
            title, rows = comment[1], []
        elif member := re.match(r"    ([A-Z_]+) = ", line):
            cause = reason.Cause[member[1]]
            text = re.sub(r"\{\w+:[^}|]*\|((?:[^{}]|\{\w+\})*)\}", r"\1", str(cause.value))
            rows.append((f"`{cause.name.lower()}`", re.sub(r"\{(\w+):[^}]*\}", r"{\1}", text)))
    yield from [f"### {title.capitalize()}", *_table("cause | sentence", rows)]


def _decisions() -> Iterator[str]:
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        title = path.read_text("utf-8").partition("\n")[0].lstrip("# ")
        yield f"- [{title}]({path.name})"


def navigation() -> Iterator[tuple[str, str, str]]:
    """Section, title and page of each entry in mkdocs.yml."""
    section = ""
    for line in (ROOT / "mkdocs.yml").read_text("utf-8").splitlines():
        if found := re.match(r"  - ([^:]+):$", line):
            section = found[1]
        elif found := re.match(r" +- ([^:]+): (\S+\.md)$", line):
            yield section, found[1], found[2]


def _llms(made: dict[str, str]) -> Iterator[str]:
    yield f"# Recollect\n\n> {SUMMARY}"
    last = ""
    for section, title, page in navigation():
        if section != last:
            yield f"\n## {'Optional' if section == 'Contributing' else section}\n"
        last = section
        if section:
            yield f"- [{title}]({page}): {_first_sentence(made.get(page) or _read(page))}"


def _first_sentence(text: str) -> str:
    paragraphs = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).split("\n\n")
    first = next(one for one in paragraphs if one.strip() and one.strip()[0] not in "#<!|-")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=\.)\s", plain)[0]


def full_text() -> str:
    """Every page of the site except those for contributors, one after the other."""
    made = pages()
    kept = [page for section, _, page in navigation() if section != "Contributing"]
    return "\n\n".join(f"<!-- {page} -->\n{made.get(page) or _read(page)}" for page in kept)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
