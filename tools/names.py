"""`python -m tools.names [--lines] [FILE…]`: check that names in the package say what a value is.

Counts values named by a lone pronoun, preposition or participle, functions that do not begin with a
verb, private members used from other files, and tuned numbers without a reason. Two words
(`stored_rows`) are never vague. A participle may name a boolean, a number, or a set or dict that
fills up, because it is their predicate there.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "src/recollect"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


Kind: TypeAlias = Literal["values", "functions", "private uses", "constants"]
LIMITS: Final[dict[Kind, float]] = {
    "values": 1.5,
    "functions": 2,
    "private uses": 3,
    "constants": 10,
}
"""Percent of the values, functions and constants, and the number of private uses. The code bases
that we compared with have 0.2 to 1.4 percent vague values."""

PRONOUNS: Final = _words(
    "one ones other others some whole own more most ours theirs yours mine every each here there "
    "what why where when whose which who rest both any none itself same such"
)
PREPOSITIONS: Final = _words(
    "at beside about among around near within without under again thus apart together aside "
    "elsewhere meanwhile off beyond ahead fresh new old"
)
ADJECTIVES: Final = _words(
    "surer stray loose bare plain ready late early still widest shortest lowest newest"
)
IRREGULAR_PARTICIPLES: Final = _words(
    "found known done given made kept asked held shown said left seen told taken come gone written "
    "meant chosen begun drawn built sent spent lost heard felt bought brought caught thought "
    "taught grown thrown torn worn won paid laid led fed hidden broken spoken stolen forgotten "
    "understood unread unknown unseen unsaid untold"
)
NO_PARTICIPLES: Final = _words(
    "seed speed feed need embed red shed bleed breed weed exceed proceed succeed indeed naked "
    "hundred sacred wicked shred greed reed deed creed heed unified deprecated nested"
)
PUBLIC_PROTOCOL: Final = _words(
    "_replace _asdict _fields _make _field_defaults _name_ _value_ _missing_ _exit _getframe"
)
PREDICATE_TYPES: Final = re.compile(r"\b(?:bool|int|float|set|dict|Event|datetime)\b")
PREDICATE_CALLS: Final = _words("bool any all len sum Event time monotonic now perf_counter")
NAMED_AS_PYTHON_DOES: Final = frozenset({"wrapped", "elapsed"})
OWNERS: Final = frozenset({"self", "cls", "mcs", "super"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A name that does not say what it is."""

    kind: Kind
    name: str
    line: int


@dataclass(slots=True)
class NameCount:
    """What was counted: the names of each kind, and the findings."""

    totals: Counter[Kind] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def note(self, kind: Kind, name: str, line: int, *, is_vague: bool) -> None:
        self.totals[kind] += 1
        if is_vague:
            self.findings.append(Finding(kind, name, line))


def is_participle(word: str) -> bool:
    ends_as_one = len(word) > 4 and word.endswith("ed") and word not in NO_PARTICIPLES
    return word in IRREGULAR_PARTICIPLES or ends_as_one


def is_vague_value(name: str, *, is_predicate: bool) -> bool:
    word = name.strip("_")
    if "_" in word or word.isupper():
        return False
    return word in PRONOUNS | PREPOSITIONS or (is_participle(word) and not is_predicate)


def is_vague_function(name: str) -> bool:
    words = name.strip("_").split("_")
    is_lone = len(words) == 1 and words[0] in PRONOUNS | PREPOSITIONS | ADJECTIVES
    return (is_lone or is_participle(words[0])) and name not in NAMED_AS_PYTHON_DOES


def check_source(source: str) -> NameCount:
    """Count the names of one file."""
    tree, count = ast.parse(source), NameCount()
    predicates = {name for name, value, hint in _assignments(tree) if _is_predicate(value, hint)}
    own_names = _names_defined(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id != "_":
            vague = is_vague_value(node.id, is_predicate=node.id in predicates)
            count.note("values", node.id, node.lineno, is_vague=vague)
        elif isinstance(node, ast.arg) and node.arg not in OWNERS:
            vague = is_vague_value(node.arg, is_predicate=_is_predicate(None, node.annotation))
            count.note("values", node.arg, node.lineno, is_vague=vague and node.arg != "other")
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                vague = is_vague_value(node.attr, is_predicate=node.attr in predicates)
                count.note("values", node.attr, node.lineno, is_vague=vague)
            if _is_private(node.attr) and not _is_own(node, own_names):
                count.note("private uses", ast.unparse(node), node.lineno, is_vague=True)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in filter(lambda alias: _is_private(alias.name), node.names):
                count.note("private uses", alias.name, node.lineno, is_vague=True)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            _check_function(node, count)
    _check_constants(tree, source.splitlines(), count)
    return count


def _check_function(node: ast.FunctionDef | ast.AsyncFunctionDef, count: NameCount) -> None:
    if node.name.startswith("__"):
        return
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    is_value = "property" in decorators or "fixture" in decorators
    asks = node.returns is not None and "bool" in ast.unparse(node.returns)
    is_vague = is_vague_function(node.name) and not (is_value or asks)
    count.note("functions", node.name, node.lineno, is_vague=is_vague)


def _check_constants(tree: ast.Module, lines: list[str], count: NameCount) -> None:
    """A reason is a string after the constant, a comment on it, or a comment above its group."""
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        name = getattr(node.targets[0] if isinstance(node, ast.Assign) else node.target, "id", "")
        if not (name.isupper() and _is_number(node.value)) or str(_constant(node.value)) in name:
            continue
        above = [
            line for line in lines[: node.lineno - 1] if not re.match(r"_?[A-Z]\w*\b.*=", line)
        ]
        has_reason = (
            (isinstance(following, ast.Expr) and isinstance(_constant(following.value), str))
            or "#" in "".join(lines[node.lineno - 1 : node.end_lineno])
            or (above[-1:] != [] and above[-1].lstrip().startswith("#"))
        )
        count.note("constants", name, node.lineno, is_vague=not has_reason)


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((_target(target), node.value, None) for target in node.targets)
        elif isinstance(node, ast.AnnAssign):
            yield _target(node.target), node.value, node.annotation
        elif isinstance(node, ast.AugAssign):
            yield _target(node.target), ast.Constant(0), None


def _names_defined(tree: ast.Module) -> set[str]:
    """Return the names that this file defines itself: variables, attributes, functions, slots."""
    names = {name for name, _, _ in _assignments(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and _target(node.targets[0]) == "__slots__":
            names |= {str(_constant(text)) for text in ast.walk(node.value)}
    return names


def _target(node: ast.expr) -> str:
    return str(getattr(node, "id", getattr(node, "attr", "")))


def _constant(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return type(_constant(node.operand if isinstance(node, ast.UnaryOp) else node)) in (int, float)


def _is_predicate(value: ast.expr | None, hint: ast.expr | None) -> bool:
    """Return whether a value is a boolean, a number, or a set or dict that starts empty."""
    if hint is not None and PREDICATE_TYPES.search(ast.unparse(hint)):
        return True
    match value:
        case ast.Constant():
            return isinstance(value.value, bool | int | float)
        case ast.BoolOp():
            return any(isinstance(part, ast.Compare) for part in value.values)
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Call(func=ast.Name() | ast.Attribute()):
            called = _target(value.func)
            is_empty = called in ("set", "dict") and not value.args
            return is_empty or called in PREDICATE_CALLS or called.startswith(("is_", "has_"))
    return False


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(node: ast.Attribute, own_names: set[str]) -> bool:
    owner = node.value.func if isinstance(node.value, ast.Call) else node.value
    return node.attr in own_names | PUBLIC_PROTOCOL or getattr(owner, "id", "") in OWNERS


def check_files(paths: list[Path]) -> dict[Path, NameCount]:
    return {path: check_source(path.read_text("utf-8")) for path in paths}


def shares(counts: list[NameCount]) -> dict[Kind, float]:
    """Return the vague names: a percentage, or for private uses their number."""
    totals: Counter[Kind] = Counter()
    vague: Counter[Kind] = Counter()
    for count in counts:
        totals.update(count.totals)
        vague.update(finding.kind for finding in count.findings)
    return {
        kind: float(vague[kind])
        if kind == "private uses"
        else 100 * vague[kind] / (totals[kind] or 1)
        for kind in LIMITS
    }


def main(arguments: list[str]) -> int:
    """Print the shares, and with `--lines` each finding. Return 1 above a limit."""
    named = [Path(argument) for argument in arguments if not argument.startswith("--")]
    by_path = check_files(named or sorted(PACKAGE.rglob("*.py")))
    for path, count in by_path.items() if "--lines" in arguments else ():
        for finding in count.findings:
            print(f"{path}:{finding.line}: {finding.kind}: {finding.name}")
    result = shares(list(by_path.values()))
    for kind, share in result.items():
        print(f"{kind:13} {share:5.1f}  (limit {LIMITS[kind]:g})")
    return int(any(share > LIMITS[kind] for kind, share in result.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
