"""`preset = "openclaw"` against OpenClaw's own formulas, worked out here and not by our code.

What is expected is computed from its design documents (weights, decay, threshold, window, caps,
lines) by plain loops over whole messages; the engine, the store and the embedder are real."""

import asyncio
import hashlib
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.config.test_recall_settings_act import Clock

from recollect import open_memory
from recollect.adapters.wiring import open_store
from recollect.cli import main
from recollect.core.engine.session import Context
from recollect.core.search.openclaw import WarmIndex, Weights
from recollect.core.values.batch import Batch
from recollect.core.values.fact import Fact, FactId, FactType
from recollect.core.values.message import EntryKey, MessageId
from recollect.core.values.segment import Segment, SegmentId

START = datetime(2026, 2, 10, 14, 31, tzinfo=UTC).timestamp()
HOUR = 3600.0
DAY = 24 * HOUR
OPENING = '<recalled-context source="memory-context">'


@dataclass(frozen=True)
class Said:
    at: float
    role: str
    text: str


# --- OpenClaw's formulas, by hand ------------------------------------------------------------


def trigrams(text: str) -> list[float]:
    text = re.sub(r"\s+", " ", text[:2000].lower())
    text = "".join(c if c.isalnum() or c in " @.+-" else " " for c in text).strip()
    row = [0.0] * 384
    padded = f" {text} "
    for at in range(len(padded) - 2):
        digest = hashlib.sha256(padded[at : at + 3].encode()).digest()
        row[int.from_bytes(digest[:4], "little") % 384] += 1.0 if digest[4] % 2 == 0 else -1.0
    return row


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return dot / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


def plain_words(text: str) -> list[str]:
    """Enough for the English texts below: letters and digits, parted by the rest."""
    return re.findall(r"[a-z0-9]+", text.lower())


def bm25(texts: Sequence[str], query: str) -> list[float]:
    documents = [plain_words(text) for text in texts]
    average = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word in plain_words(query):
            holding = sum(word in other for other in documents)
            idf = math.log((len(documents) - holding + 0.5) / (holding + 0.5) + 1)
            count = document.count(word)
            length = 1 - 0.75 + 0.75 * len(document) / average
            score += idf * count * 2.2 / (count + 1.2 * length)
        scores.append(score)
    return scores


def hits_of(
    archive: Sequence[Said], query: str, now: float, *, limit: int = 8, least: float = 0.7
) -> dict[int, float]:
    """Score by place: 0.7 cosine + 0.3 BM25 of the best, times 0.995 a day, over the threshold;
    then two messages around each at 15% less for each step."""
    near = [cosine(trigrams(one.text), trigrams(query)) for one in archive]
    words = bm25([one.text for one in archive], query)
    nearest = sorted((-c, at) for at, c in enumerate(near) if c >= 0)[: 2 * limit]
    wordiest = sorted((-w, at) for at, w in enumerate(words) if w > 0)[: 2 * limit]
    best = -wordiest[0][0] if wordiest else 1.0
    scores: dict[int, float] = {}
    for at in {at for _, at in nearest} | {at for _, at in wordiest}:
        by_vector = near[at] if (-near[at], at) in nearest else 0.0
        by_words = words[at] / best if (-words[at], at) in wordiest else 0.0
        decayed = (0.7 * by_vector + 0.3 * by_words) * 0.995 ** ((now - archive[at].at) / DAY)
        contributing = 0.7 * (by_vector > 0) + 0.3 * (by_words > 0)
        if contributing and decayed / contributing >= least:
            scores[at] = decayed
    first = sorted(scores, key=lambda at: -scores[at])[:limit]
    widened: dict[int, float] = {}
    for at in first:
        for away in (-2, -1, 0, 1, 2):
            if 0 <= at + away < len(archive):
                score = scores[at] * (1 - 0.15 * abs(away))
                widened[at + away] = max(score, widened.get(at + away, 0.0))
    return widened


def tokens(text: str) -> int:
    return math.ceil(len(text) / 3)


def facts_of(facts: Sequence[Fact], query: str) -> list[Fact]:
    words = list(dict.fromkeys(query.lower().split()))
    count = len(words)
    if count <= 2:
        least = count
    elif count <= 8:
        least = math.ceil(count / 2)
    else:
        least = min(math.ceil(count * 0.3), 6)
    held = [(sum(word in fact.content.lower() for word in words), fact) for fact in facts]
    return [f for n, f in sorted(held, key=lambda h: (-h[0], -h[1].at)) if n >= least][:10]


def block_of(archive: Sequence[Said], facts: Sequence[Fact], query: str, now: float) -> str:
    cap = 4000
    known: list[str] = []
    for fact in facts_of(facts, query):
        if known and sum(map(tokens, known)) + tokens(f"- [{fact.type}] {fact.content}") > 1200:
            break
        known.append(f"- [{fact.type}] {fact.content}")
    scores = hits_of(archive, query, now)
    chosen: list[int] = []
    for at in sorted(scores, key=lambda at: (-scores[at], at)):
        if chosen and sum(tokens(archive[one].text) for one in [*chosen, at]) > 2800:
            break
        chosen.append(at)
    while True:
        details = [
            f"[{datetime.fromtimestamp(archive[at].at, UTC):%Y-%m-%d %H:%M} {archive[at].role}] "
            f"{archive[at].text}"
            for at in sorted(chosen)
        ]
        parts = [OPENING]
        if known:
            parts.append("<knowledge>\n" + "\n".join(known) + "\n</knowledge>")
        if details:
            parts.append("<detail>\n" + "\n\n".join(details) + "\n</detail>")
        text = "\n\n".join([*parts, "</recalled-context>"])
        if tokens(text) <= cap or not chosen:
            return text if known or details else ""
        chosen.pop()


# --- the engine ------------------------------------------------------------------------------


def spoken(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


async def live(
    path: Path,
    archive: Sequence[Said],
    asking: Sequence[dict[str, Any]],
    *,
    now: float,
    facts: Sequence[Fact] = (),
    **settings: Any,
) -> Context:
    """A session that said all of this, message by message, and whose client then kept only
    the newest few; what its next request becomes."""
    clock = Clock(START)
    memory = open_memory(
        store=path / "m.db", preset="openclaw", clock=clock, settings=dict(settings)
    )
    history: list[dict[str, Any]] = []
    for one in archive:
        clock.seconds = one.at
        history.append(spoken(one.role, one.text))
        await memory.prepare("s", {"messages": list(history)})
    await memory.settle()
    if facts:
        store = await open_store(str(path / "m.db"), space="default")
        await store.write(Batch(at=START, facts=tuple(facts)))
        await store.close()
    clock.seconds = now
    context = await memory.prepare("s", {"system": "Be brief.", "messages": list(asking)})
    await memory.close()
    assert context.report.failures == ()
    return context


def shown(context: Context) -> list[str]:
    """The texts of the request's messages, in order."""
    texts = []
    for message in context.request["messages"]:
        content = message["content"]
        parts = [content] if isinstance(content, str) else [part["text"] for part in content]
        texts += parts
    return texts


def block_in(context: Context) -> str:
    return next((text for text in shown(context) if text.startswith("<recalled-context")), "")


def fact(name: str, type_: FactType, content: str, at: float = START) -> Fact:
    return Fact(id=FactId(name), type=type_, content=content, at=at)


TALK = [
    Said(START, "user", "Please set up the payment webhook for the shop, with Stripe."),
    Said(START + HOUR, "assistant", "Done. The endpoint answers under /api/stripe/webhook now."),
    Said(START + 2 * HOUR, "user", "Which secret verifies the webhook signature in staging?"),
    Said(
        START + 3 * HOUR,
        "assistant",
        "The webhook signature in staging is verified with the secret STAGE_HOOK:\n"
        "  const sig = req.headers['stripe-signature'];\n  verify(sig, STAGE_HOOK);",
    ),
    Said(START + 4 * HOUR, "user", "Thanks. Lunch is at noon in the garden today, by the way."),
    Said(START + 5 * HOUR, "assistant", "Enjoy it! I will go on with the refund logic meanwhile."),
    Said(START + 3 * DAY, "user", "The refund job must never run twice for one order number."),
    Said(START + 3 * DAY + HOUR, "assistant", "Understood: one refund for one order, by a lock."),
    Said(START + 9 * DAY, "user", "Rename the crane module to hoist in every file, please."),
    Said(START + 9 * DAY + HOUR, "assistant", "The crane module is called hoist everywhere now."),
]
FACTS = [
    fact("f1", "decision", "Use Stripe for payment processing with webhook signature checks"),
    fact("f2", "task_state", "Refund logic is not yet implemented", START + DAY),
    fact("f3", "config", "The webhook in staging verifies with the secret STAGE_HOOK", START + DAY),
    fact("f4", "architecture", "Events travel over Redis"),
]
ASKED = "Which secret is the webhook signature in staging verified with?"


@pytest.mark.parametrize("days", [10, 40, 80])
def test_the_block_is_openclaws_to_the_letter(tmp_path: Path, days: int) -> None:
    now = START + days * DAY
    asking = [
        spoken("user", "Back to the webhook."),
        spoken("assistant", "Yes?"),
        spoken("user", ASKED),
    ]
    context = asyncio.run(live(tmp_path, TALK, asking, now=now, facts=FACTS))
    expected = block_of(TALK, FACTS, f"Back to the webhook. {ASKED}", now)
    assert block_in(context) == expected
    assert ("<detail>" in expected) == (days < 80), "the case shows nothing"
    assert shown(context)[0] == expected, "it stands behind the system prompt, before the talk"


def test_decay_comes_before_the_threshold(tmp_path: Path) -> None:
    """The same question, day by day: the block goes on the day the formula says."""
    recalled = []
    for days in (10, 30, 50, 70):
        folder = tmp_path / str(days)
        folder.mkdir()
        now = START + days * DAY
        context = asyncio.run(live(folder, TALK, [spoken("user", ASKED)], now=now))
        expected = block_of(TALK, (), ASKED, now)
        assert block_in(context) == expected, days
        recalled.append(bool(expected))
    assert recalled == sorted(recalled, reverse=True), "it comes back"
    assert set(recalled) == {True, False}, "the case shows nothing"


def found_in(index: WarmIndex, query: str, now: float) -> list[str]:
    hits, _ = index.search(query, None, now=now, limit=8, weights=Weights(min_score=0.0))
    return [hit.id for hit in hits]


def test_the_index_holds_so_many_messages_of_so_many_days() -> None:
    index = WarmIndex(max_segments=3, eviction_days=90)
    for day in range(0, 100, 20):
        text = f"the crane was greased on day {day}"
        index.add(
            Segment(
                id=SegmentId(str(day)),
                session="s",
                key=EntryKey(str(day)),
                message_id=MessageId(str(day)),
                role="user",
                text=text,
                tokens=8,
                said_at=START + day * DAY,
                source="request",
                trust="high",
            ),
            None,
        )
    assert sorted(found_in(index, "crane", START + 80 * DAY)) == ["40", "60", "80"]
    assert sorted(found_in(index, "crane", START + 131 * DAY)) == ["60", "80"]
    assert found_in(index, "crane", START + 171 * DAY) == []


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 30])
def test_a_fact_must_hold_as_many_words_as_the_design_says(tmp_path: Path, count: int) -> None:
    words = [f"word{at:02d}" for at in range(count)]
    facts = [fact(f"f{n}", "config", " ".join(words[:n])) for n in range(1, count + 1)]
    query = " ".join(words)
    context = asyncio.run(
        live(tmp_path, TALK[:2], [spoken("user", query)], now=START + DAY, facts=facts)
    )
    assert block_in(context) == block_of(TALK[:2], facts, query, START + DAY)


def test_the_caps_are_30_and_70_percent_and_the_lowest_score_goes_first(tmp_path: Path) -> None:
    long = [
        Said(
            START + at * HOUR,
            "user" if at % 2 == 0 else "assistant",
            f"The webhook signature in staging is verified with the secret number {at}. " * 20,
        )
        for at in range(12)
    ]
    facts = [
        fact(f"f{n}", "config", f"webhook signature staging secret number {n} " + "x" * 700)
        for n in range(8)
    ]
    now = START + DAY
    asked = long[4].text[:300]
    context = asyncio.run(live(tmp_path, long, [spoken("user", asked)], now=now, facts=facts))
    expected = block_of(long, facts, asked, now)
    assert block_in(context) == expected
    assert expected.count("- [config]") < 8, "the case shows nothing"
    assert expected.count("[2026-02-1") < 12, "the case shows nothing"
    assert tokens(expected) <= 4000


async def test_the_block_is_renewed_every_turn(tmp_path: Path) -> None:
    clock = Clock(START)
    memory = open_memory(store=tmp_path / "m.db", preset="openclaw", clock=clock)
    await memory.prepare("s", {"messages": [spoken(o.role, o.text) for o in TALK]})
    clock.seconds += DAY
    talk = [spoken("user", ASKED)]
    turns = [shown(await memory.prepare("s", {"messages": list(talk)}))]
    talk += [spoken("assistant", "STAGE_HOOK."), spoken("user", TALK[6].text + " Why?")]
    turns.append(shown(await memory.prepare("s", {"messages": list(talk)})))
    await memory.close()
    (first, second) = turns
    assert [text.startswith(OPENING) for text in first] == [True, False]
    assert [text.startswith(OPENING) for text in second] == [True, False, False, False]
    assert first[0] != second[0]


async def test_view_is_trimmed_to_safe_limit_before_anything_is_compacted(tmp_path: Path) -> None:
    """window - reserve - hard cap, by ceil(len / 3), the least relevant first."""
    window = 80_000
    talk = [
        spoken(
            "user" if at % 2 == 0 else "assistant",
            (f"note {at} about the hoist " if at % 3 else f"note {at} about the webhook ") * 300,
        )
        for at in range(40)
    ] + [spoken("user", "what did we say about the webhook?")]
    asked: list[str] = []

    async def model(prompt: Any) -> str:
        asked.append("summary")
        return "nothing"

    memory = open_memory(
        store=tmp_path / "m.db",
        preset="openclaw",
        window_tokens=window,
        clock=Clock(START),
        model=model,
    )
    context = await memory.prepare("s", {"messages": talk})
    await memory.close()
    assert asked == []
    safe = window - 20_000 - 4000
    kept = [text for text in shown(context) if text.startswith("note")]
    left = [one["content"] for one in talk[:-1] if one["content"] not in kept]
    assert sum(map(tokens, kept)) <= safe < sum(tokens(one["content"]) for one in talk)
    assert left
    assert all("hoist" in text for text in left), "what the question names left before the rest"


async def test_what_is_forgotten_leaves_the_index_in_memory(tmp_path: Path) -> None:
    clock = Clock(START)
    memory = open_memory(store=tmp_path / "m.db", preset="openclaw", clock=clock)
    await memory.prepare("s", {"messages": [spoken(o.role, o.text) for o in TALK]})
    clock.seconds += DAY
    before = block_in(await memory.prepare("s", {"messages": [spoken("user", ASKED)]}))
    store = await open_store(str(tmp_path / "m.db"), space="default")
    held = [one.segment for one in await store.page(session="s")]
    hooked = [one.id for one in held if "STAGE_HOOK" in one.text]
    await store.withdraw(hooked)
    await store.close()
    again = [spoken("user", ASKED + " Say it again.")]
    after = block_in(await memory.prepare("s", {"messages": again}))
    await memory.close()
    assert "STAGE_HOOK" in before
    assert "STAGE_HOOK" not in after


def test_search_command_asks_as_turn_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    talk = [Said(now, one.role, one.text) for one in TALK]

    async def remember() -> None:
        memory = open_memory(store=tmp_path / "m.db", preset="openclaw", clock=Clock(now))
        await memory.prepare("s", {"messages": [spoken(o.role, o.text) for o in talk]})
        await memory.close()

    asyncio.run(remember())
    monkeypatch.setenv("RECOLLECT_PRESET", "openclaw")

    def search(*words: str) -> dict[str, Any]:
        arguments = ["memory", "search", "--store", str(tmp_path / "m.db"), "--json", *words]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    expected = hits_of(talk, ASKED, now)
    found = search(ASKED)
    assert found["a_turn_would_recall"]
    by_text = {hit["passage"]: hit["score"] for hit in found["hits"]}
    assert by_text == {
        talk[at].text: pytest.approx(score, abs=2e-4) for at, score in expected.items()
    }
    silent = search("does our crane carry forty tons over the northern quay")
    assert not silent["a_turn_would_recall"]
    assert "no message scores 0.70" in silent["reason"]
