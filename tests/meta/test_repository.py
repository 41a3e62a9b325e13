"""What must never be committed, and what importing must never cost."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SKIPPED = {".git", ".venv", ".ci/venv", "__pycache__", ".hypothesis"}


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / line for line in listed.stdout.splitlines()]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in committed():
        try:
            found.append((path, path.read_text()))
        except (UnicodeDecodeError, FileNotFoundError):
            continue
    return found


def test_no_registry_host_and_no_path_of_a_machine() -> None:
    hosts = re.compile(r"pypi\.org|files\.pythonhosted|registry\.npmjs|deb\.debian|index-url")
    machine = re.compile(r"(?<![\w.])/(?:root|home/\w+|work|opt)/\w")
    here = Path(__file__)
    for path, text in texts():
        if path == here:
            continue
        assert not hosts.search(text), path
        found = machine.search(text)
        assert found is None or "tests" in path.parts or "docs" in path.parts, (path, found)


def test_no_large_files() -> None:
    for path in committed():
        if path.exists():
            assert path.stat().st_size < 1_000_000, path


def test_constraints_pin_and_name_no_source() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line]
    for line in lines:
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", line), line


def imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_recollect_loads_nothing_heavy() -> None:
    assert not imported_by("import recollect") & {"msgspec", "rich", "click", "asyncio"}


def test_the_engine_never_loads_the_drawing_library() -> None:
    loaded = imported_by("import recollect; recollect.open_memory()")
    assert not loaded & {"rich", "click", "json5", "bpe_openai", "detect_secrets"}


def test_a_gateway_loads_no_transcripts() -> None:
    """An agent that is wrapped waits for this import."""
    code = "import sys, recollect.hosts.gateway.running as _\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "recollect.adapters.session.transcript" not in done.stdout.split()


# A page of the docs, a decision by its number, or a file of the package, as prose cites them.
_PAGE = re.compile(r"\bdocs/(?:[\w-]+/)*[\w-]+\.md\b")
_RECORD = re.compile(r"\bdocs/decisions/(\d{4})\b")
_SOURCE = re.compile(r"`(?:src/recollect/)?((?:[a-z_]+/)+[a-z_]+\.py)`")
_OUTSIDE = re.compile(
    r"\bnotes/(?:formats|parts|recall|cost|live|fleet|peers|style)\.md\b|\bseeds/"
)


def test_what_code_and_docs_cite_is_in_the_repository() -> None:
    records = {path.name[:4] for path in (ROOT / "docs/decisions").glob("[0-9]*.md")}
    roots = (ROOT, ROOT / "src", ROOT / "src/recollect", ROOT / "bench/src/recollect_bench")
    for path, text in texts():
        if path == Path(__file__) or path.suffix not in {".py", ".md", ".toml", ".sql", ""}:
            continue
        if not path.is_relative_to(ROOT / "tests"):  # which make up pages of their own
            for page in _PAGE.findall(text):
                assert (ROOT / page).is_file(), f"{path}: cites {page}"
        for number in _RECORD.findall(text):
            assert number in records, f"{path}: cites decision {number}"
        assert not _OUTSIDE.search(text), f"{path}: cites a document that is not here"
        if path.suffix == ".md" and path.name != "CHANGELOG.md":
            for file in _SOURCE.findall(text):
                assert any((root / file).is_file() for root in roots), f"{path}: names {file}"


def test_decisions_have_a_number_of_their_own() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs/decisions").glob("[0-9]*.md")]
    assert len(numbers) == len(set(numbers))


def test_the_package_imports_neither_benches_nor_tests() -> None:
    foreign = re.compile(r"^\s*(?:from|import) (?:recollect_bench|tests)\b", re.MULTILINE)
    for path, text in texts():
        if path.is_relative_to(ROOT / "src") and path.suffix == ".py":
            assert not foreign.search(text), path


def test_the_package_has_no_import_circle() -> None:
    """Also not one that is only for the type checker: whoever reads follows it all the same."""
    source = ROOT / "src"
    modules = {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (source / "recollect").rglob("*.py")
    }
    imports = {name: _imported(name, path, modules) for name, path in modules.items()}
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name not in done:
            for other in sorted(imports[name]):
                walk(other, (*above, name))
            done.add(name)

    for name in modules:
        walk(name, ())


def _imported(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {other for other in found if other in modules and other != name}


def test_no_class_name_stands_twice_in_the_package() -> None:
    """Whoever searches for a name finds one thing."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src" / "recollect").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
