"""Agents killed within compactions, at the size of CI; `just crash` kills twenty times as many."""

import asyncio
from pathlib import Path

from tests.sizes import at_size, only_in_full
from tools.crash.compaction_kills import kill_assistants
from tools.crash.compaction_verify import Durable, Left, verify_session
from tools.crash.desk import WHOLE, Desk, marker, words_of
from tools.crash.outcome import Outcome, table
from tools.crash.places import site

from recollect.adapters.wiring import open_store

KILLS = at_size(ci=4, full=25)
BROKEN = "tests.crash.broken_desks"


def killed(folder: Path, *, kills: int, desk: str = WHOLE) -> Outcome:
    with site("sqlite", folder) as found:
        return kill_assistants(found.place(), found.home(), kills=kills, desk=desk)


def test_an_agent_killed_within_compactions_loses_nothing(tmp_path: Path) -> None:
    outcome = killed(tmp_path, kills=KILLS)
    assert outcome.clean, table([outcome])
    assert outcome.figures["inside"] == KILLS, "so many kills must fall into compactions"
    assert outcome.figures["compactions"] > KILLS // 3, "and compactions must come to their end"
    assert outcome.acknowledged > 2 * KILLS


def test_a_transcript_that_acknowledges_before_it_writes_is_found_out(tmp_path: Path) -> None:
    outcome = killed(tmp_path, kills=2, desk=f"{BROKEN}:AcksEarly")
    missing = any("in the store only" in problem for problem in outcome.problems)
    assert outcome.lost or missing, table([outcome])
    assert not outcome.clean


@only_in_full
def test_a_store_that_forgets_what_it_acknowledged_is_found_out(tmp_path: Path) -> None:
    outcome = killed(tmp_path, kills=1, desk=f"{BROKEN}:Forgetful")
    assert outcome.lost, table([outcome])


@only_in_full
def test_a_cut_without_its_record_is_found_out(tmp_path: Path) -> None:
    outcome = killed(tmp_path, kills=1, desk=f"{BROKEN}:CutsUnrecorded")
    assert any("without its record" in problem for problem in outcome.problems), table([outcome])


def left_by(desk: Desk, durable: Durable) -> Left:
    async def look() -> Left:
        store = await open_store(desk.location, space=desk.space)
        try:
            return await verify_session(desk, store, "desk-0", durable)
        finally:
            await store.close()

    return asyncio.run(look())


def test_what_a_transcript_lacks_doubles_or_cannot_show_is_counted(tmp_path: Path) -> None:
    desk = Desk(home=tmp_path, location=str(tmp_path / "m.db"), space="s")
    said = {marker(0, "user"), marker(0, "assistant")}
    with desk.transcript("desk-0") as transcript:
        for _ in range(2):
            text = [{"type": "text", "text": words_of(0, "user")}]
            transcript.append_message({"role": "user", "content": text})
    left = left_by(desk, Durable(transcript=said))
    assert left.lost == {f"transcript {marker(0, 'assistant')}"}
    assert left.twice == {f"transcript {marker(0, 'user')}"}
    desk.file("desk-0").write_text('{"type": "message"}\n')
    assert any("does not open" in problem for problem in left_by(desk, Durable()).problems)
