"""`recollect import` and `recollect export` as a user runs them, on real files and a real store."""

import asyncio
import gzip
import json
import shutil
import stat
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.recollect_cli import Recollect
from tests.sizes import at_size

from recollect.adapters.embedders.local import HashEmbedder
from recollect.adapters.wiring import open_memory
from recollect.core.formats.openclaw_files import read_vectors, write_vectors
from recollect.core.formats.transcripts import read_transcripts

NODE = Path(__file__).parents[1] / "node"
OPENCLAW_FILES = ("segments.jsonl", "knowledge.jsonl", "vectors.bin")
# Built here, so that no scanner takes this file for a leak.
SECRET = "sk-ant-api03-" + "Zq7Rw2Lk9Pf4Xv8B" * 5 + "-AAAAAAAA"


@pytest.fixture
def recollect(tmp_path: Path) -> Recollect:
    return Recollect(tmp_path)


def write_openclaw_files(folder: Path, *, segments: int = 60, newline: str = "yes") -> Path:
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node here to write the files with")
    folder.mkdir(parents=True, exist_ok=True)
    script = str(NODE / "write_openclaw_files.mjs")
    subprocess.run([program, script, str(folder), str(segments), newline], check=True, timeout=60)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        name: (folder / name).read_bytes() for name in OPENCLAW_FILES if (folder / name).exists()
    }


def messages(count: int, *, said: str = "the parser of the configuration file") -> bytes:
    turns: list[dict[str, Any]] = []
    for turn in range(count):
        turns.append({"role": "user", "content": f"question {turn} about {said}"})
        turns.append({"role": "assistant", "content": f"answer {turn} about {said}"})
    return json.dumps(turns).encode()


@pytest.mark.parametrize("newline", ["yes", "no"])
def test_openclaws_files_come_back_byte_for_byte(
    recollect: Recollect, tmp_path: Path, newline: str
) -> None:
    given = write_openclaw_files(tmp_path / "given", segments=450, newline=newline)
    told = recollect.json("import", given)
    (file,) = told["files"]
    assert (file["messages"]["read"], file["messages"]["stored"]) == (450, 450)
    assert file["facts"]["stored"] == 6
    assert (file["passed_over"], file["altered"]) == ([], 0)
    recollect.text("export", tmp_path / "out")
    assert contents(tmp_path / "out") == contents(given)


def hashed(*texts: str) -> tuple[bytes, ...]:
    return asyncio.run(HashEmbedder().embed(texts))


def vectors_in(folder: Path) -> dict[str, bytes]:
    found = read_vectors((folder / "vectors.bin").read_bytes())
    assert found.passed_over == ()
    return {name: found.values(name) for name in found.offsets}


def write_vectors_file(folder: Path, vectors: dict[str, bytes]) -> None:
    size = len(next(iter(vectors.values()))) // 4
    data = b"".join(write_vectors(list(vectors.items()), dimensions=size))
    (folder / "vectors.bin").write_bytes(data)


def test_an_export_has_the_vectors_topics_and_entities_that_openclaw_computes(
    recollect: Recollect, tmp_path: Path
) -> None:
    texts = [
        "我们决定使用 PostgreSQL 数据库，见《架构》",
        "Deploys of src/app.py go through Docker",
        "ok",
    ]
    talk = [{"role": "user", "content": text} for text in texts]
    (tmp_path / "talk.json").write_text(json.dumps(talk))
    recollect.text("import", tmp_path / "talk.json")
    recollect.text("export", tmp_path / "out")
    text = (tmp_path / "out" / "segments.jsonl").read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["metadata"] for line in lines] == [
        {"topics": ["database", "architecture", "decision"], "entities": ["PostgreSQL", "架构"]},
        {"topics": ["deployment"], "entities": ["src/app.py", "Docker"]},
        {"topics": [], "entities": []},
    ]
    # "ok" is noise, which OpenClaw does not store
    expected = {line["id"]: row for line, row in zip(lines[:2], hashed(*texts[:2]), strict=True)}
    assert vectors_in(tmp_path / "out") == expected


@pytest.mark.parametrize("dimensions", [384, 3072, 3])
def test_vectors_of_any_embedder_come_back_and_none_is_added_to_them(
    recollect: Recollect, tmp_path: Path, dimensions: int
) -> None:
    given = write_openclaw_files(tmp_path / "given", segments=30)
    names = list(vectors_in(given))
    rows = {name: struct.pack("<f", number / 7) * dimensions for number, name in enumerate(names)}
    write_vectors_file(given, rows)
    recollect.text("import", given)
    (tmp_path / "talk.json").write_bytes(messages(2))
    recollect.text("import", tmp_path / "talk.json")
    recollect.text("export", tmp_path / "out")
    assert (tmp_path / "out/vectors.bin").read_bytes() == (given / "vectors.bin").read_bytes()


def test_hash_vectors_are_computed_again_also_for_new_messages(
    recollect: Recollect, tmp_path: Path
) -> None:
    given = write_openclaw_files(tmp_path / "given", segments=30)
    data = (given / "segments.jsonl").read_bytes()
    lines = [json.loads(line) for line in data.splitlines()]
    rows = hashed(*(line["content"] for line in lines))
    write_vectors_file(given, {line["id"]: row for line, row in zip(lines, rows, strict=True)})
    recollect.text("import", given)
    vectors = recollect.json("memory", "stats")["vectors"]
    assert sum(count for name, count in vectors.items() if "vectors.bin" in name) <= 2
    recollect.text("export", tmp_path / "out")
    assert (tmp_path / "out/vectors.bin").read_bytes() == (given / "vectors.bin").read_bytes()
    (tmp_path / "talk.json").write_bytes(messages(2))
    recollect.text("import", tmp_path / "talk.json")
    recollect.text("export", tmp_path / "more")
    more = vectors_in(tmp_path / "more")
    assert len(more) == 34
    assert list(more)[:30] == [line["id"] for line in lines]


def test_no_vector_of_a_secret_or_of_a_forgotten_message_is_stored(
    recollect: Recollect, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    texts = [f"the key is {SECRET}", "project nightfall begins in May", "nothing special here"]
    lines = [
        {"id": name, "sessionId": "s", "timestamp": 1, "role": "user", "content": text}
        for name, text in zip("abc", texts, strict=True)
    ]
    (given / "segments.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = {name: struct.pack("<3f", number, 1, 2) for number, name in enumerate("abc")}
    write_vectors_file(given, rows | {"gone": struct.pack("<3f", 9, 9, 9)})
    told = recollect.json("import", given)
    assert told["files"][0]["passed_over"] == [
        "segments.jsonl vectors.bin: 1 vectors belong to no message"
    ]
    recollect.text("memory", "forget", "--matching", "nightfall", "--yes")
    recollect.text("export", tmp_path / "out")
    assert vectors_in(tmp_path / "out") == {"c": rows["c"]}


def test_a_damaged_vectors_file_imports_nothing_and_says_so(
    recollect: Recollect, tmp_path: Path
) -> None:
    given = write_openclaw_files(tmp_path / "given", segments=10)
    (given / "vectors.bin").write_bytes(b"not vectors")
    assert "must begin with VMEM" in recollect.run("import", given).stderr.decode()
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    shutil.copy(given / "vectors.bin", lonely)
    assert "needs the segments.jsonl" in recollect.run("import", lonely).stderr.decode()


def test_a_second_import_adds_nothing(recollect: Recollect, tmp_path: Path) -> None:
    given = write_openclaw_files(tmp_path / "given")
    recollect.text("import", given)
    again = recollect.json("import", given)["totals"]
    assert (again["stored"], again["known"], again["facts"]) == (0, 60, 0)
    assert again["passed_over"] == 0
    recollect.text("export", tmp_path / "out")
    back = recollect.json("import", tmp_path / "out")["totals"]
    assert (back["stored"], back["known"]) == (0, 60)


def test_a_secret_in_a_line_is_kept_masked_and_told(recollect: Recollect, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    lines = [
        {"id": "a", "sessionId": "s", "timestamp": 1, "role": "user", "content": "nothing secret"},
        {"id": "b", "sessionId": "s", "timestamp": 2, "role": "user", "content": f"key {SECRET}"},
        {"id": "c", "sessionId": "s", "timestamp": 3, "role": "user", "content": "x" * 9}
        | {"metadata": {"topics": [SECRET]}, "note": {"apiKey": SECRET}},
    ]
    (given / "segments.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fact = {"id": "f", "type": "config", "content": f"the key is {SECRET}", "context": ""}
    (given / "knowledge.jsonl").write_text(json.dumps({**fact, "timestamp": 1}) + "\n")
    done = recollect.run("import", given)
    assert done.returncode == 0
    assert "3 lines contained secrets" in done.stderr.decode()
    recollect.text("export", tmp_path / "out")
    out = contents(tmp_path / "out")
    assert all(SECRET.encode() not in data for data in out.values())
    exported = out["segments.jsonl"].decode().splitlines()
    assert exported[0] == json.dumps(lines[0])
    assert [json.loads(line)["id"] for line in exported] == ["a", "b", "c"]
    for path in tmp_path.glob("memory.db*"):
        assert SECRET.encode() not in path.read_bytes()


def test_bad_lines_are_told(recollect: Recollect, tmp_path: Path) -> None:
    given = write_openclaw_files(tmp_path / "given", segments=10)
    with (given / "segments.jsonl").open("ab") as file:
        file.write(b'{"id":"cut off\n')
    done = recollect.run("import", given)
    assert done.returncode == 0
    said = done.stderr.decode()
    assert "line 11: not JSON, or cut off" in said
    assert "1 passed over" in done.stdout.decode()


def test_an_export_is_for_its_owner_and_overwrites_nothing(
    recollect: Recollect, tmp_path: Path
) -> None:
    (tmp_path / "talk.json").write_bytes(messages(2))
    recollect.text("import", tmp_path / "talk.json")
    assert "4 messages, 0 facts" in recollect.text("export", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "knowledge.jsonl",
        "segments.jsonl",
        "vectors.bin",
    ]
    for path in (tmp_path / "out").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "--force" in recollect.refused("export", tmp_path / "out")
    recollect.text("export", tmp_path / "out", "--force")


def test_our_own_segments_are_spelled_as_node_spells_them(
    recollect: Recollect, tmp_path: Path
) -> None:
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node here to compare with")
    said = 'tricky 👍 文字 \u2028 \u0007 \ud83d "quoted" \\ back'
    (tmp_path / "talk.json").write_bytes(messages(3, said=said))
    recollect.text("import", tmp_path / "talk.json")
    recollect.text("export", tmp_path / "out")
    written = (tmp_path / "out" / "segments.jsonl").read_bytes()
    again = subprocess.run(
        [program, str(NODE / "stringify_again.mjs")], input=written, capture_output=True, check=True
    )
    assert again.stdout == written
    fields = [json.loads(line) for line in written.decode().split("\n") if line]
    assert [one["role"] for one in fields] == ["user", "assistant"] * 3
    assert {one["sessionId"] for one in fields} == {"talk"}


def test_everything_that_has_a_reader_is_imported(
    recollect: Recollect, data: Path, tmp_path: Path
) -> None:
    """In CI one recording of each kind but Codex, whose are small."""
    folder = tmp_path / "given"
    folder.mkdir()
    for path in (data / "transcripts").iterdir():
        small = at_size(ci="pi_before-compaction.jsonl.gz", full="")
        if path.name != small and not path.name.startswith(("taubench", "aider")):
            shutil.copy(path, folder)
    told = recollect.json("import", folder)
    counted = {file["file"]: file for file in told["files"]}
    expected = 0
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".tgz"):
            continue
        runs = read_transcripts(path.read_bytes(), name=path.name)
        items = sum(len(run.items) for run in runs)
        counts = counted[path.name]["messages"]
        assert counted[path.name]["sessions"] == len(runs)
        assert counts["read"] == items
        assert counts["stored"] + counts["known"] + counts["skipped"] == items
        expected += counts["stored"]
    stats = recollect.json("memory", "stats")
    assert stats["segments"] == expected == told["totals"]["stored"]
    assert stats["noise"] == told["totals"]["noise"]
    again = recollect.json("import", folder)["totals"]
    assert (again["stored"], again["read"]) == (0, told["totals"]["read"])
    assert recollect.json("memory", "check")["problems"] == []


def test_folders_and_what_has_no_reader(recollect: Recollect, tmp_path: Path) -> None:
    folder = tmp_path / "sessions" / "deep"
    folder.mkdir(parents=True)
    (folder / "one.json.gz").write_bytes(gzip.compress(messages(2, said="gzip")))
    (folder / "README.md").write_text("about these sessions")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "notes.jsonl").write_text("# what we think of it\n")
    (tmp_path / "sessions" / "two.json").write_bytes(messages(3, said="plain"))
    done = recollect.run("import", tmp_path / "sessions")
    assert done.returncode == 1
    assert "notes.jsonl: not imported: unknown format" in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1
    out = done.stdout.decode()
    assert "one.json.gz (messages): 4 messages read, 4 stored" in out
    assert "two.json (messages): 6 messages read, 6 stored" in out
    assert "in all: 10 messages read, 10 stored, 0 known" in out
    sessions = recollect.json("memory", "sessions")["sessions"]
    assert {one["session"] for one in sessions} == {"one", "two"}
    recollect.text("import", tmp_path / "sessions" / "two.json", "--session", "called so")
    assert recollect.json("memory", "show", "called so")["segments"]


@pytest.mark.parametrize("name", ["chat.json", "segments.jsonl"])
def test_a_link_out_of_a_folder_is_told_and_not_followed(
    recollect: Recollect, tmp_path: Path, name: str
) -> None:
    folder, outside = tmp_path / "clone", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / name).write_bytes(messages(2))
    (folder / name).symlink_to(outside / name)
    (folder / "own.json").write_bytes(messages(2))
    told = recollect.json("import", folder, code=1)
    assert {one["file"]: bool(one["problem"]) for one in told["files"]} == {
        name: True,
        "own.json": False,
    }


def test_what_cannot_work_is_one_line(recollect: Recollect, tmp_path: Path) -> None:
    assert "does not exist" in recollect.refused("import", tmp_path / "missing.jsonl")
    (tmp_path / "a.json").write_bytes(messages(1))
    (tmp_path / "b.json").write_bytes(messages(1))
    both = (tmp_path / "a.json", tmp_path / "b.json")
    assert "one session" in recollect.refused("import", *both, "--session", "s")
    (tmp_path / "empty").mkdir()
    assert "name the files" in recollect.refused("import", tmp_path / "empty")


async def test_an_imported_session_that_goes_on_is_stored_once(
    recollect: Recollect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imported, then continued by requests with moved cache marks, then compacted by its client."""
    turns: list[dict[str, Any]] = []
    for turn in range(4):
        words = f"{turn} about the parser, with words enough to tell it from all the others"
        turns.append({"role": "user", "content": [{"type": "text", "text": f"question {words}"}]})
        turns.append(
            {"role": "assistant", "content": [{"type": "text", "text": f"answer {words}"}]}
        )
    (tmp_path / "talk.json").write_text(json.dumps(turns))
    told = recollect.json("import", tmp_path / "talk.json", "--session", "s")["totals"]
    assert told["stored"] == 8
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "home"))
    settings = {"window_tokens": 200_000}
    memory = open_memory(store=recollect.url, settings=settings)
    new = {"role": "user", "content": "a new question, asked of the engine itself this time"}
    marked = json.loads(json.dumps(turns))
    marked[-2]["content"][0]["cache_control"] = {"type": "ephemeral"}
    marked[0]["content"] = marked[0]["content"][0]["text"]
    await memory.prepare("s", {"messages": [*marked, new]}, format="anthropic")
    summary = "This session is being continued from a previous conversation: the parser."
    kept = [{"role": "user", "content": summary}, *turns[-3:], new]
    await memory.prepare("s", {"messages": kept}, format="anthropic")
    await memory.close()
    assert recollect.json("memory", "stats")["segments"] == 10  # and the summary
    again = recollect.json("import", tmp_path / "talk.json", "--session", "s")["totals"]
    assert (again["stored"], again["known"]) == (0, 8)
