"""Facts of our own come into another memory: restored with all they say, else with less."""

import io
import json
from dataclasses import replace
from pathlib import Path

from tests.store_contract.examples import START, fact, ids, segments

from recollect.adapters.stores.sqlite import SQLiteStore
from recollect.core.rules.identity import space_secret
from recollect.core.rules.tokens import Weigher
from recollect.core.transfer.openclaw import export_facts, import_facts
from recollect.core.transfer.transcripts import ImportRules
from recollect.core.values.batch import Batch
from recollect.core.values.fact import EvidenceSpan, FactId
from recollect.system.config.settings import Redaction

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
RULES = ImportRules(
    secret=space_secret("examples"), redaction=Redaction(), weigher=Weigher(), now=START + 100
)
AT = 1771000000.0


async def test_facts_come_back_in_another_memory(tmp_path: Path) -> None:
    new = segments(2)
    spans = tuple(EvidenceSpan(segment=one, start=0, end=4) for one in ids(new))
    given = (
        fact("old", at=AT, superseded_by=FactId("new"), valid_to=AT + 1, subject="port"),
        fact("new", at=AT + 1, change="supersede", sources=ids(new), evidence=spans, joint=True),
        fact("liked", at=AT + 2, type="preference", trust="high", made_by="user", pinned=True),
        fact("told", at=AT + 3, trust="high", made_by="rules", session="talk", recorded_at=AT + 4),
    )
    async with (
        await SQLiteStore.open(tmp_path / "one.db", space="one") as one,
        await SQLiteStore.open(tmp_path / "two.db", space="two") as two,
    ):
        await one.write(Batch(at=START, segments=new, facts=given))
        first = io.BytesIO()
        assert await export_facts(one, first) == 4
        lines = first.getvalue().splitlines(keepends=True)
        done = await import_facts(two, lines, rules=RULES)
        assert (done.messages.stored, done.passed_over) == (4, ())
        came = [replace(each, foreign=None) for each in await two.facts(superseded=True)]
        less = [replace(each, trust="medium", made_by="import", pinned=False) for each in given]
        assert came == less, "a file is nobody's word"
        await import_facts(two, lines, rules=RULES, restore=True)
        came = [replace(each, foreign=None) for each in await two.facts(superseded=True)]
        assert came == list(given)
        again = io.BytesIO()
        await export_facts(two, again)
        assert again.getvalue() == first.getvalue()
        assert (await import_facts(two, lines, rules=RULES)).messages.known == 4


async def test_secrets_are_masked_in_our_own_keys_too(tmp_path: Path) -> None:
    line = {
        "id": "f", "type": "config", "content": "x", "context": "", "timestamp": 1,
        "subject": f"key {SECRET}", "attribute": "token", "session": "talk",
    }  # fmt: skip
    async with await SQLiteStore.open(tmp_path / "one.db", space="one") as store:
        done = await import_facts(store, [json.dumps(line).encode()], rules=RULES)
        assert done.altered == 1
        (kept,) = await store.facts()
        assert SECRET not in kept.subject
        assert SECRET not in (kept.foreign or "")
        assert (kept.attribute, kept.session) == ("token", "talk")
