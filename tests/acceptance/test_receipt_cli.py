"""`recollect receipt`, `undo` and `replay` as a user runs them, after real compactions."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.acceptance.recollect_cli import Recollect
from tests.unit.hooks.agent_transcripts import ClaudeTranscript

from recollect import open_memory
from recollect.adapters.wiring import open_store
from recollect.agent.commands import compaction_text
from recollect.cli import main
from recollect.core.compaction.ask import REQUIRED_HEADINGS
from recollect.core.compaction.probe import MAX_PROBES
from recollect.core.values.compaction import CompactionResult
from recollect.hosts.inspect.sessions import read_receipts
from recollect.hosts.inspect.text import receipt_lines
from recollect.testing.scripted_model import ScriptedModel

RULE = "Never push to the release branch without asking me."
SAID = ("ship the gateway", "{} the spool", "rename the tables", "plain English", "{} it", "none")
SETTINGS = {
    "window_tokens": 8_000,
    "recall.embedder": "none",
    "compaction.keep_recent_tokens": 500,
    "compaction.background": False,
    "compaction.audit": False,
    "compaction.pin_ratio": 0.02,
}


def summary(verb: str) -> str:
    pairs = zip(REQUIRED_HEADINGS, SAID, strict=True)
    return "\n".join(f"{heading}\n- {line.format(verb)}" for heading, line in pairs)


def history(turns: int) -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = [{"role": "user", "content": f"{RULE} Then start with the quay."}]
    for n in range(turns):
        filler = f"The winch number {n} is oiled and the crane beside it is painted again. " * 6
        held += [
            {
                "role": "assistant",
                "content": f"I edited src/crane_{n}.py at 4f2a{n:02d}c. {filler}",
            },
            {"role": "user", "content": f"go on with the quay, part {n}, port {8000 + n * 7}"},
        ]
    return held


def body(turns: int) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 100, "messages": history(turns)}).encode()


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, bytes]]:
    """A session with two compactions, and what was sent in each turn."""
    folder = tmp_path_factory.mktemp("compacted")
    sent: dict[int, bytes] = {}

    async def run() -> None:
        model = ScriptedModel([summary("drop"), summary("keep")])
        async with open_memory(
            store=folder / "memory.db", settings=SETTINGS, model=model
        ) as memory:
            for turns in (12, 24):
                for more in (0, 1):
                    context = await memory.prepare("work", body(turns + more))
                    sent[context.report.turn] = context.request
                done = await memory.compact("work")
                assert done.convergence == "reduced", done.reason
            context = await memory.prepare("work", body(26))
            sent[context.report.turn] = context.request

    asyncio.run(run())
    return folder, sent


class InProcess(Recollect):
    """The same calls in this process: a new one takes a second, and there are many here."""

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        space: str | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[bytes]:
        options = ["--store", self.url] + (["--space", space] if space else [])
        done = CliRunner().invoke(
            main,
            [*map(str, arguments), *options],
            input=stdin,
            env={"COLUMNS": "100", **(env or {})},
        )
        return subprocess.CompletedProcess(
            arguments, done.exit_code, done.stdout_bytes, done.stderr_bytes
        )


@pytest.fixture
def recollect(talked: tuple[Path, dict[int, bytes]], tmp_path: Path) -> Recollect:
    for file in talked[0].glob("memory.db*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return InProcess(tmp_path)


def test_the_page_says_what_became_of_what_was_known(recollect: Recollect) -> None:
    told = recollect.json("receipt", "work")
    assert (told["number"], told["trigger"], told["convergence"]) == (2, "manual", "reduced")
    assert told["tokens_after"] < told["tokens_before"]
    receipt = told["receipt"]
    assert receipt["in_summary"] + receipt["recallable"] + receipt["lost"] == len(
        receipt["findings"]
    )
    assert receipt["recallable"], "memory holds what the summary does not"
    assert {"change": "dropped", "text": "drop the spool"} in told["diff"]
    assert {"change": "new", "text": "keep the spool"} in told["diff"]
    shown = recollect.text("receipt", "work")
    assert "Compaction 2 of 2  work" in shown
    assert "- drop the spool" in shown
    assert "+ keep the spool" in shown
    assert re.search(r"^paths .*\d", shown, re.MULTILINE)
    assert shown.index("Lost") < shown.index("Against summary 1")
    assert "\x1b" not in shown, "no colours where nobody looks at a terminal"


def test_what_would_be_lost_is_pinned_in_the_summary(recollect: Recollect) -> None:
    told = recollect.json("receipt", "work", "--number", "1")
    findings = {one["text"]: one for one in told["receipt"]["findings"]}
    rule = findings[RULE]
    assert (rule["standing"], rule["pinned"]) == ("in summary", True)
    assert f"- constraint: {RULE}" in told["summary"]
    assert told["previous_number"] is None
    assert told["diff"] == []
    shown = recollect.text("receipt", "work", "--number", "1")
    assert "the first of this session" in shown
    assert f"+ constraint {RULE}" in shown
    assert "No checked detail is lost" in shown
    assert re.search(
        rf"Details checked \W+{len(findings)} of {len(findings)}$", shown, re.MULTILINE
    )
    assert "Not checked" not in shown


def test_a_long_session_says_how_many_details_were_not_checked(tmp_path: Path) -> None:
    """120 checked details of 150,000 tokens do not show that nothing was lost."""
    recollect = InProcess(tmp_path)

    async def run() -> CompactionResult:
        model = ScriptedModel([summary("drop")], window_tokens=200_000)
        settings = {**SETTINGS, "window_tokens": 100_000}
        async with open_memory(store=recollect.url, settings=settings, model=model) as memory:
            await memory.prepare("long", body(90))
            return await memory.compact("long")

    done = asyncio.run(run())
    told = recollect.json("receipt", "long")["receipt"]
    assert told["checked"] == len(told["findings"]) == MAX_PROBES
    assert told["details"] > MAX_PROBES
    assert told["not_checked"] == told["details"] - told["checked"]
    share = f"{told['checked']} of {told['details']}"
    assert f"{share} details checked: " in str(done)
    assert f"{share} details checked: " in compaction_text(done)
    shown = recollect.text("receipt", "long")
    assert re.search(rf"Details checked \W+{share}$", shown, re.MULTILINE)
    assert f"Not checked: {told['not_checked']} more details" in shown
    listed = recollect.text("receipt", "long", "--list").splitlines()
    assert listed[-1].split()[-1] == str(told["not_checked"])


def test_compactions_are_listed(recollect: Recollect) -> None:
    told = recollect.json("receipt", "work", "--list")["compactions"]
    assert [one["number"] for one in told] == [1, 2]
    shown = recollect.text("receipt", "work", "--list").splitlines()
    assert len(shown) == 3
    assert "nobody" in recollect.text("receipt", "nobody", "--list")
    newest = recollect.json("receipt", "--list")
    assert (newest["session"], newest["compactions"]) == ("work", told), "the session used last"


def test_what_is_not_there_is_one_line(recollect: Recollect) -> None:
    assert "no compaction" in recollect.refused("receipt", "nobody")
    assert "stored are 1, 2" in recollect.refused("receipt", "work", "--number", "7")
    assert "--turn N" in recollect.refused("replay", "work")
    missing = recollect.run("replay", "work", "--turn", "99")
    assert (missing.returncode, missing.stdout) == (2, b"")
    assert b"turn 99 is not in the ledger" in missing.stderr
    for command in (("undo", "nobody"), ("replay", "nobody", "--turn", "1")):
        assert "no session 'nobody' is stored" in recollect.refused(*command)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
async def test_the_page_keeps_to_its_width(recollect: Recollect, width: int) -> None:
    store = await open_store(recollect.url, space="default")
    found = await read_receipts(store, "work")
    await store.close()
    page = found.page()
    assert max(len(line) for line in receipt_lines(page, width)) <= width


def test_undo_shows_again_what_was_cut(recollect: Recollect) -> None:
    told = recollect.json("undo", "work")
    assert (told["undone"], told["number"]) == (True, 2)
    listed = recollect.json("receipt", "work", "--list")["compactions"]
    assert [one["undone"] for one in listed] == [False, True]
    assert recollect.json("receipt", "work")["undone"] is True
    shown = recollect.text("undo", "work")
    assert "compaction 1" in shown
    again = recollect.run("undo", "work")
    assert (again.returncode, again.stdout) == (1, b"")
    assert b"no compaction" in again.stderr
    assert recollect.json("undo", "work", code=1)["undone"] is False

    async def view() -> bytes:
        settings = {**SETTINGS, "window_tokens": 100_000}
        async with open_memory(store=recollect.url, settings=settings) as memory:
            sent = (await memory.prepare("work", body(26))).request
            assert isinstance(sent, bytes)
            return sent

    assert RULE.encode() in asyncio.run(view())
    assert recollect.json("receipt", "work", "--list")["compactions"], "receipts stay"


def test_replay_prints_what_was_sent(
    recollect: Recollect, talked: tuple[Path, dict[int, bytes]]
) -> None:
    sent = talked[1]
    apart = Recollect(recollect.home)
    assert apart.run("replay", "work", "--turn", str(min(sent))).stdout == sent[min(sent)]
    listed = recollect.json("replay", "work", "--list")["turns"]
    assert [one["turn"] for one in listed] == sorted(sent) == [1, 2, 3, 4, 5]
    assert recollect.text("replay", "work", "--list").strip()
    for turn in (min(sent), max(sent)):
        done = recollect.run("replay", "work", "--turn", str(turn))
        assert done.returncode == 0
        assert done.stdout == sent[turn]
        assert done.stderr.decode().rstrip().endswith(": exact")
    told = recollect.json("replay", "work", "--turn", str(max(sent)))
    assert told["exact"] is True
    assert told["request"] == json.loads(sent[max(sent)])


def test_an_imported_session_shows_what_its_agents_compactions_lost(tmp_path: Path) -> None:
    """Also those from before Recollect was installed. A repeated import adds none."""
    recollect = InProcess(tmp_path)
    transcript = ClaudeTranscript(tmp_path)
    for part, sizes in enumerate([(171_204, 9_120), (168_004, 8_870)]):
        for text in (f"{RULE} That holds for part {part}.", "The quay listens on port 18443."):
            transcript.user(text)
            transcript.reply(f"Understood, part {part}.")
        transcript.compacted(summary="The quay listens on port 18443.", tokens=sizes)
        transcript.reply("Going on.")
    for stored in ("2 compaction receipts", "12 known"):
        assert stored in recollect.text("import", transcript.path)
    rows = json.loads(recollect.text("receipt", transcript.session_id, "--list", "--json"))
    assert [row["tokens_before"] for row in rows["compactions"]] == [171_204, 168_004]
    assert {row["host"] for row in rows["compactions"]} == {"Claude Code"}
    text = recollect.text("receipt", transcript.session_id, "--number", "1")
    assert "Claude Code compacted by itself (threshold): 4 messages replaced" in text
    assert "recallable" in text
    listed = recollect.text("receipt", transcript.session_id, "--list")
    assert listed.count("Claude Code") == 2
    assert "undone" not in listed
    refused = recollect.run("undo", transcript.session_id, "--yes")
    assert refused.returncode == 2
    assert b"Claude Code compacted this session itself" in refused.stderr
    assert b"only undoes compactions by Recollect" in refused.stderr
    recollect.text("memory", "forget", "--matching", "release branch", "--yes")
    gone = recollect.run("receipt", transcript.session_id)
    assert b"no compaction" in gone.stderr
    assert "compaction receipt" not in recollect.text("import", transcript.path), "forgotten"
