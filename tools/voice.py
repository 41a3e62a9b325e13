"""`python -m tools.voice`: check user-facing text against the rules in CONTRIBUTING.md.

Reads the pages, every command's and option's help, every setting's description, report sentence,
error and log line. Fails on words of the table, on help that does not start with a verb or a noun
phrase, on sentences of more than 30 words, and on commit subjects over 72 characters.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from recollect.cli import main as command_line
from recollect.core.values.reason import Cause
from tools.reference import setting_effects

ROOT: Final = Path(__file__).parent.parent
MARK: Final = "<!-- The rest of this page is generated"
BASE: Final = "ee49b627"
"""Commits after this one are checked."""
MOST_WORDS, MOST_CHARACTERS = 30, 72
WORDS: Final = {
    r"stands? in|stands? (at|before|behind|beside|there)": "is, appears",
    r"tells|told|is told": "reports, shows, logs",
    r"what (was|is|were) said": "the message, content",
    r"what is known": "session state, facts",
    r"goes out|went out": "is sent",
    r"goes? on\b(?! to)|went on": "continues",
    r"a look into": "a query",
    r"whoever|nobody|somebody|everybody|whom": "a user, no client, the caller",
    r"the like": "and similar",
    r"some \d[\d,.]* ?[MGk]B": "about",
    r"is away|are away|was away": "down, unavailable",
    r"mend(s|ed)?|amiss": "fix, wrong",
    r"laid down|lays down": "stated, decided",
    r"anew|for good": "again, permanently",
    r"hands? over|brings? (the|a|its) token": "passes, sends a token",
    r"gives? way|lets? go of": "yields, releases",
    r"beside": "next to, in parallel",
    r"a beginning of (its|the) id": "an id prefix",
    r"fates?": "outcome",
    r"batch moments?": "edit batch",
    r"room (for|left)|no room": "space, budget",
}
OPENINGS: Final = re.compile(
    r"\s*(what|where|who|whom|of|whether|how|when|why|if|unless|as|because|so|that|which|with|for|from"
    r"|in|on|at|by|to|it|its|this|these|they|only|not)\b",
    re.I,
)
"""No verb and no noun phrase starts with these words."""
LOGS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical", "echo"})

_TABLE: Final = [(re.compile(rf"\b(?:{word})\b", re.I), use) for word, use in WORDS.items()]
_CODE: Final = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|https?://\S+|<!--.*?-->", re.S)
_END: Final = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n(?=[-*|#]|\d+\. )|\|")


def main() -> int:
    """Print each problem; the exit code."""
    checks = (check_pages, check_help, check_sentences, check_messages, check_subjects)
    found = [line for check in checks for line in check()]
    for line in found:
        print(line)
    print(f"{len(found)} problems" if found else "no problems")
    return int(bool(found))


def check_pages() -> Iterator[str]:
    """Words and lengths of the pages."""
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = path.read_text("utf-8").partition(MARK)[0]
        yield from _check(str(path.relative_to(ROOT)), text)


def check_help() -> Iterator[str]:
    """Help of commands and options, and descriptions of settings."""
    texts = [(f"setting {path}", effect) for path, effect in setting_effects().items()]
    for name, text in [*texts, *_help_of(command_line, "recollect")]:
        if first := OPENINGS.match(text):
            yield f"{name}: starts with {first[1]!r}: {text}"
        yield from _check(name, text)


def _help_of(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    if command.hidden:
        return
    yield name, command.help or ""
    for option in command.params:
        if isinstance(option, click.Option) and option.help and not option.hidden:
            yield f"{name} {option.opts[0]}", option.help
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and child != "bench":
                yield from _help_of(found, f"{name} {child}")


def check_sentences() -> Iterator[str]:
    """Sentences of reports."""
    for cause in Cause:
        yield from _check(f"cause {cause.name}", str(cause.value))


def check_messages() -> Iterator[str]:
    """Texts of errors that are raised, and of lines that are logged or printed."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            name = getattr(call.func, "attr", "") if isinstance(call, ast.Call) else ""
            if isinstance(call, ast.Call) and (call is not node or name in LOGS):
                for text in map(_literal, call.args):
                    yield from _check(f"{path.relative_to(ROOT)}:{call.lineno}", text)


def _literal(node: ast.expr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts)


def check_subjects() -> Iterator[str]:
    """Subjects of commits since BASE; none where the history is not at hand."""
    listed = ["git", "log", "--format=%s", f"{BASE}..HEAD"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    for subject in done.stdout.splitlines():
        if len(subject) > MOST_CHARACTERS:
            yield f"commit: {len(subject)} characters: {subject}"


def _check(name: str, text: str) -> Iterator[str]:
    plain = _CODE.sub(" x ", text)
    for sentence in (" ".join(one.split()) for one in _END.split(plain)):
        words = len(re.findall(r"[\w'’-]+", sentence))
        if words > MOST_WORDS:
            yield f"{name}: {words} words: {sentence}"
        for pattern, use in _TABLE:
            if hit := pattern.search(sentence):
                yield f"{name}: {hit[0]!r} (write: {use}): {sentence}"


if __name__ == "__main__":
    sys.exit(main())
