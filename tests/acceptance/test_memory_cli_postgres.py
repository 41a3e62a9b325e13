"""The same commands on a real PostgreSQL: in, out, looked at, forgotten."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.acceptance.recollect_cli import Recollect

from recollect.cli import main
from recollect_bench.postgres_server import PostgresServer

NODE = Path(__file__).parents[1] / "node"
OPENCLAW_FILES = ("segments.jsonl", "knowledge.jsonl", "vectors.bin")
MARKER = "zanzibarquetzal"


def test_the_commands_on_a_server(server: PostgresServer, tmp_path: Path) -> None:
    database = server.new_database()
    owner = Recollect(tmp_path, database.admin_url)
    assert "recollect db migrate" in owner.refused("memory", "stats")

    def migrate() -> str:
        done = CliRunner().invoke(main, ["db", "migrate", database.admin_url])
        assert done.exit_code == 0, done.output
        return done.output

    assert "applied" in migrate()
    assert "up to date" in migrate()
    program = shutil.which("node")
    if program is None:
        pytest.skip("no Node here to write the files with")
    given = tmp_path / "given"
    given.mkdir()
    subprocess.run(
        [program, str(NODE / "write_openclaw_files.mjs"), str(given), "230"], check=True, timeout=60
    )
    told = owner.json("import", given)["totals"]
    assert (told["stored"], told["facts"], told["altered"]) == (230, 6, 0)
    again = owner.json("import", given)["totals"]
    assert (again["stored"], again["passed_over"]) == (0, 0)
    owner.text("export", tmp_path / "out")
    for name in OPENCLAW_FILES:
        assert (tmp_path / "out" / name).read_bytes() == (given / name).read_bytes(), name
    assert owner.json("memory", "search", "webhook", "--limit", "3")["hits"]
    assert owner.json("memory", "reindex")["segments"] == 230
    owner.text("export", tmp_path / "again")
    assert (tmp_path / "again/vectors.bin").read_bytes() == (given / "vectors.bin").read_bytes()
    assert owner.json("memory", "stats", space="another")["segments"] == 0
    turns = [{"role": "user", "content": f"the code word is {MARKER}, keep it"}]
    (tmp_path / "talk.json").write_text(json.dumps(turns))
    owner.text("import", tmp_path / "talk.json")
    shown = owner.text("memory", "forget", "--matching", MARKER, "--yes")
    assert "1  segment\n" in shown
    assert owner.json("import", tmp_path / "talk.json")["totals"]["forgotten"] == 1
    talk = [{"role": "user", "content": "the port is 8088"}]
    (tmp_path / "other.json").write_text(json.dumps(talk))
    owner.text("import", tmp_path / "other.json", space="/src/app")
    spaces = {one["space"]: one for one in owner.json("space", "list")["spaces"]}
    assert set(spaces) == {"default", "/src/app"}
    assert (spaces["/src/app"]["sessions"], spaces["/src/app"]["segments"]) == (1, 1)
    assert spaces["/src/app"]["bytes_on_disk"] is None
    assert owner.json("memory", "check")["problems"] == []
    assert owner.json("memory", "scrub")["done"]
