"""What holds for forgetting by text, and facts by name: what is about no message goes too."""

from __future__ import annotations

import json
from dataclasses import replace

from recollect.testing.store_contract.examples import (
    SESSION,
    START,
    fact,
    ids,
    piece,
    segments,
    session_write,
)
from recollect.testing.store_contract.harness import Spaces, contents
from recollect.values.batch import Batch, NewJob
from recollect.values.edit import Cut, Edit, Insert, LeaveOut, Shorten
from recollect.values.fact import FactId
from recollect.values.reason import NOT_RUN
from recollect.values.upkeep import ForgetOrder

AT = START + 5_000
MARK = "Großer Bärenklau"
SPELLINGS = ("großer bärenklau", "GROSSER BÄRENKLAU", "Großer Bärenklau")


async def pieces_that_hold_a_text_go(spaces: Spaces) -> None:
    """Ledger pieces that hold the text go, however JSON spells it and whatever they are about."""
    store = await spaces.open()
    new = segments(2)
    bodies = (
        *SPELLINGS,
        json.dumps({"system": f"of {MARK}"}),
        json.dumps({"call": json.dumps({"name": MARK.upper()})}),
    )
    gone = tuple(piece(f"{number} {body}", kind="system") for number, body in enumerate(bodies))
    about = piece(f"row of {MARK}", about=(new[0].segment.message_id,))
    stays = (piece("Großer Bär", kind="tools"), piece("other", kind="system"))
    pieces = (*gone, about, *stays)
    await store.write(Batch(at=START, segments=new, pieces=pieces))
    done = await store.forget(ForgetOrder(at=AT, matching=MARK.lower()))
    assert done.pieces == len(gone) + 1
    assert set(await store.pieces([one.hash for one in pieces])) == {one.hash for one in stays}
    assert (done.segments, done.message_ids, len(await store.page())) == ((), (), 2)
    await store.write(Batch(at=AT, pieces=pieces))  # a system prompt comes with each request
    assert set(await store.pieces([one.hash for one in pieces])) == {one.hash for one in stays}
    quoted = piece(json.dumps('say "hi" to C:\\temp'), kind="rest")
    await store.write(Batch(at=START, pieces=(quoted,)))
    assert (await store.forget(ForgetOrder(at=AT, matching='"HI" to c:\\'))).pieces == 1


async def jobs_that_hold_a_text_go(spaces: Spaces) -> None:
    """Jobs whose payload or last reason holds the text go; others stay."""
    store = await spaces.open()
    jobs = (
        NewJob(kind="work", key="payload", payload=json.dumps({"note": MARK}).encode()),
        NewJob(kind="work", key="other", payload=b'{"note": "other"}'),
        NewJob(kind="fail", key="reason"),
        NewJob(kind="fail", key="dead", payload=f'"{MARK}"'.encode()),
    )
    await store.write(Batch(at=START, jobs=jobs))
    leases = await store.claim(now=AT, lease_seconds=60, kinds=("fail",), limit=9)
    for lease in leases:
        told = f"it said {MARK}" if lease.key == "reason" else "no"
        await store.fail(lease, reason=told, retry_at=None if lease.key == "dead" else AT)
    done = await store.forget(ForgetOrder(at=AT, matching=MARK.upper()))
    assert done.jobs == 3
    assert [record.key for record in await store.jobs()] == ["other"]


async def states_that_hold_a_text_lose_their_quotes(spaces: Spaces) -> None:
    """A session state that holds the text quotes nothing any more; others are as they were."""
    store = await spaces.open()
    new = segments(3)
    key, other = new[0].segment.key, new[1].segment.key
    plain = LeaveOut(anchor=key, part=None, stage="trim", reason=NOT_RUN, turn=1)
    quoting: tuple[Edit, ...] = (
        Shorten(anchor=key, part=0, text=f"… {MARK}", stage="prune", reason=NOT_RUN, turn=1),
        Insert(anchor=other, placement="before", text=MARK, stage="inject", reason=NOT_RUN, turn=1),
        Cut(anchor=other, summary=f"of {MARK}", stage="compact", reason=NOT_RUN, turn=1),
    )
    long = tuple(replace(plain, part=number) for number in range(200))
    for name, edit in zip(("shorten", "insert", "cut"), quoting, strict=True):
        for packed in (False, True):
            edits: tuple[Edit, ...] = (plain, edit, *(long if packed else ()))
            write = session_write(new, turn=1, session=f"{name}{packed}", edits=edits)
            await store.write(Batch(at=START, session=write))
    calm = session_write(new, turn=1, session="calm", edits=(plain,))
    await store.write(Batch(at=START, session=calm))
    done = await store.forget(ForgetOrder(at=AT, matching=MARK.lower()))
    assert done.session_states == 6
    again = await store.forget(ForgetOrder(at=AT, matching=MARK.lower()))
    assert again.session_states == 0
    stored = await store.session("calm")
    assert stored is not None
    assert stored.state == calm.state


async def facts_can_be_forgotten_by_id(spaces: Spaces) -> None:
    """Facts that are named go whatever they rest on; what they rest on stays."""
    store = await spaces.open()
    new = segments(2)
    facts = tuple(fact(name, sources=ids(new)) for name in ("going", "staying"))
    await store.write(Batch(at=START, segments=new, facts=facts))
    named = (FactId("going"), FactId("unheard of"))
    done = await store.forget(ForgetOrder(at=AT, facts=named))
    assert done.facts == ("going",)
    assert [one.id for one in await store.facts(superseded=True)] == ["staying"]
    assert (await store.stats()).segments == 2
    before = await contents(store, SESSION)
    assert (await store.forget(ForgetOrder(at=AT, facts=named))).facts == ()
    assert await contents(store, SESSION) == before
