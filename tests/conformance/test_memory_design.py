"""What the memory's design documents describe (000 and 001), through the library and the command
line. Values are those of the documents, written down here."""

import asyncio
import json
import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.integration.long_talk import Clock, notes
from tests.integration.test_openclaw_preset import (
    ASKED,
    DAY,
    FACTS,
    HOUR,
    START,
    TALK,
    Said,
    block_in,
    fact,
    live,
    shown,
    spoken,
    tokens,
)

from recollect import open_memory
from recollect.cli import main
from recollect.testing.provider_rules import violations

CHANNEL = "System: [2026-02-10 14:31:00 GMT+8] Feishu[main] DM from ou_1: "


class Commands:
    """`recollect` on one memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = str(folder / "memory.db")

    def run(self, *arguments: str | Path, **env: str) -> str:
        given = [*map(str, arguments), "--store", self.url]
        done = CliRunner().invoke(main, given, env=env, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    def json(self, *arguments: str | Path, **env: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(*arguments, "--json", **env))
        return found

    def take(self, *messages: dict[str, Any]) -> dict[str, Any]:
        (self.folder / "talk.json").write_text(json.dumps(messages), "utf-8")
        return self.json("import", self.folder / "talk.json")

    def exported(self, name: str) -> list[dict[str, Any]]:
        self.run("export", self.folder / "out", "--force")
        text = (self.folder / "out" / name).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_no_block_is_larger_than_a_tenth_of_the_window(tmp_path: Path) -> None:
    long = [
        Said(START + at * HOUR, ("user", "assistant")[at % 2], f"The webhook secret {at}. " * 40)
        for at in range(20)
    ]
    sizes = []
    for window, cap in ((20_000, 2_000), (200_000, 4_000)):
        folder = tmp_path / str(window)
        folder.mkdir()
        asking = [spoken("user", long[4].text[:300])]
        settings: dict[str, Any] = {"window_tokens": window, "recall.min_score": 0.1}
        context = asyncio.run(live(folder, long, asking, now=START + DAY, **settings))
        sizes.append(tokens(block_in(context)))
        assert cap / 2 < sizes[-1] <= cap
    assert sizes[0] < sizes[1]


def test_a_segment_has_openclaws_fields(commands: Commands) -> None:
    commands.take(spoken("user", "我们决定使用 PostgreSQL 数据库"), spoken("assistant", "Noted."))
    first, second = commands.exported("segments.jsonl")
    fields = ["id", "sessionId", "timestamp", "role", "content", "tokens", "metadata"]
    assert list(first) == list(second) == fields
    assert list(first["metadata"]) == ["topics", "entities"]
    assert first["metadata"]["topics"] == ["database", "decision"]


def test_a_fact_has_openclaws_fields_and_names_its_successor(commands: Commands) -> None:
    commands.run("facts", "add", "The staging API listens on port 8443")
    commands.run("facts", "add", "staging API port is 9000 now")
    assert "already known" in commands.run("facts", "add", "staging API port is 9000 now")
    old, new = commands.exported("knowledge.jsonl")
    assert list(old)[:6] == ["id", "type", "content", "context", "timestamp", "supersededBy"]
    assert old["supersededBy"] == new["id"]
    assert "supersededBy" not in new
    assert [one["content"] for one in commands.json("facts", "list")["facts"]] == [new["content"]]


TYPES = ("decision", "implementation", "config", "issue", "task_state", "architecture")


@pytest.mark.parametrize("kind", TYPES)
def test_a_fact_may_have_each_of_the_six_types(commands: Commands, kind: str) -> None:
    commands.run("facts", "add", "The crane is greased on Mondays", "--type", kind)
    assert [line["type"] for line in commands.exported("knowledge.jsonl")] == [kind]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Use PostgreSQL instead of MySQL", "decision"),
        ("Webhook endpoint is /api/stripe/webhook", "implementation"),
        ("Deploy to 168.119.x.x via Docker", "config"),
        ("SSL cert error in staging environment", "issue"),
        ("Refund logic not yet implemented", "task_state"),
        ("Event-driven with Redis pub/sub", "architecture"),
    ],
)
def test_the_type_of_a_statement_is_the_documents_own(
    commands: Commands, text: str, kind: str
) -> None:
    commands.run("facts", "add", text)
    assert commands.json("facts", "list")["facts"][0]["type"] == kind


def test_a_channels_prefix_is_no_part_of_the_question(tmp_path: Path) -> None:
    blocks = []
    for at, prefix in enumerate(("", CHANNEL)):
        folder = tmp_path / str(at)
        folder.mkdir()
        asking = [spoken("user", prefix + ASKED)]
        context = asyncio.run(live(folder, TALK, asking, now=START + 10 * DAY, facts=FACTS))
        blocks.append(block_in(context))
    assert blocks[0] == blocks[1] != ""


def test_at_most_ten_facts_are_recalled(tmp_path: Path) -> None:
    facts = [fact(f"f{n}", "config", f"webhook number {n}", START + n) for n in range(15)]
    asking = [spoken("user", "webhook number")]
    context = asyncio.run(live(tmp_path, TALK[:2], asking, now=START + DAY, facts=facts))
    listed = re.findall(r"^- \[config\] webhook number (\d+)$", block_in(context), re.MULTILINE)
    assert listed == [str(n) for n in range(14, 4, -1)]


async def test_the_block_follows_a_system_message_as_a_user_message(tmp_path: Path) -> None:
    clock = Clock(START)
    memory = open_memory(store=tmp_path / "m.db", preset="openclaw", clock=clock)
    talk = [spoken("system", "Be brief."), *(spoken(one.role, one.text) for one in TALK)]
    await memory.prepare("s", {"messages": talk}, format="openai-chat")
    clock.seconds += 12 * DAY
    asking = [talk[0], spoken("user", ASKED)]
    context = await memory.prepare("s", {"messages": asking}, format="openai-chat")
    await memory.close()
    roles = [message["role"] for message in context.request["messages"]]
    assert roles[:2] == ["system", "user"]
    assert shown(context)[1].startswith("<recalled-context")
    assert violations("openai-chat", context.request) == []


def calls(number: int, chars: int) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"n": number}}
    text = (f"{number} crane winch cargo " * chars)[:chars]
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
    return [
        spoken("user", f"please look at module number {number}"),
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
        spoken("assistant", f"module {number} moves cargo"),
    ]


async def prepared(
    tmp_path: Path, messages: Sequence[dict[str, Any]], *, system: Any = "", **settings: Any
) -> Any:
    memory = open_memory(
        store=tmp_path / "m.db", preset="openclaw", clock=Clock(START), settings=dict(settings)
    )
    body: dict[str, Any] = {"messages": list(messages)}
    context = await memory.prepare("s", {"system": system, **body} if system else body)
    await memory.close()
    assert violations("anthropic", context.request) == []
    return context


def words_of(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [one["content"] for one in messages if isinstance(one["content"], str)]


async def test_results_are_pruned_before_any_message_is_trimmed(tmp_path: Path) -> None:
    talk = [message for number in range(20) for message in calls(number, 12_000)]
    talk.append(spoken("user", "and which module moves cargo?"))
    window = {"window_tokens": 60_000}
    pruned = await prepared(tmp_path, talk, **window)
    assert sum(map(tokens, map(str, talk))) > 60_000 - 15_000 - 4_000
    assert words_of(pruned.request["messages"]) == words_of(talk), "no message was trimmed"
    (tmp_path / "off").mkdir()
    off = await prepared(tmp_path / "off", talk, **window, **{"pruning.mode": "off"})
    assert len(words_of(off.request["messages"])) < len(words_of(talk)), "the case shows nothing"


SUMMARY = (
    "The conversation history before this point was compacted into the following summary:\n\n"
    "<summary>\nThe harbor was built.\n</summary>"
)


async def test_what_is_protected_is_never_trimmed(tmp_path: Path) -> None:
    """The system prompt, a summary, the newest six messages, the last calls, what is recalled."""
    filler = [
        spoken(("user", "assistant")[at % 2], f"note {at} about the hoist " * 300)
        for at in range(40)
    ]
    filler[0] = spoken("user", "The webhook secret is kept in vault 7719.")
    newest = [spoken(("user", "assistant")[at % 2], f"recent {at} " * 40) for at in range(5)]
    span = calls(1, 500)
    talk = [spoken("user", SUMMARY), spoken("assistant", "Fine."), *filler, *span, *newest]
    talk.append(spoken("user", "where is the webhook secret kept?"))
    system = "You watch the harbor. " * 100
    context = await prepared(tmp_path, talk, system=system, window_tokens=60_000)
    sent = json.dumps(context.request["messages"])
    assert context.request["system"] == system
    assert json.dumps(SUMMARY)[1:-1] in sent
    assert all(json.dumps(one["content"])[1:-1] in sent for one in newest)
    assert '"id": "t1"' in sent and '"tool_use_id": "t1"' in sent
    left = [one for one in filler if one["content"] not in sent]
    assert 0 < len(left) < len(filler)
    assert "vault 7719" in sent, "what the question recalls stays"


async def test_without_a_match_the_oldest_messages_are_trimmed_first(tmp_path: Path) -> None:
    talk = [
        spoken(("user", "assistant")[at % 2], f"note {at} about the hoist " * 300)
        for at in range(40)
    ]
    talk.append(spoken("user", "zanzibar quetzal"))
    context = await prepared(tmp_path, talk, window_tokens=60_000)
    kept = [one["content"] for one in talk[:-1] if one["content"] in shown(context)]
    assert 0 < len(kept) < len(talk) - 1
    assert kept == [one["content"] for one in talk[-1 - len(kept) : -1]]


async def test_trimming_again_changes_nothing(tmp_path: Path) -> None:
    talk = [
        spoken(("user", "assistant")[at % 2], f"note {at} about the hoist " * 300)
        for at in range(40)
    ]
    talk.append(spoken("user", "what about the hoist, note 7?"))
    first = await prepared(tmp_path, talk, window_tokens=60_000, **{"recall.enabled": False})
    (tmp_path / "again").mkdir()
    again = await prepared(
        tmp_path / "again",
        first.request["messages"],
        window_tokens=60_000,
        **{"recall.enabled": False},
    )
    assert again.request["messages"] == first.request["messages"]
    assert len(first.request["messages"]) < len(talk)


async def test_a_recalled_block_is_never_archived(tmp_path: Path) -> None:
    clock = Clock(START)
    async with open_memory(store=tmp_path / "m.db", preset="openclaw", clock=clock) as memory:
        await memory.prepare("s", {"messages": [spoken(o.role, o.text) for o in TALK]})
        clock.seconds += 10 * DAY
        context = await memory.prepare("s", {"messages": [spoken("user", ASKED)]})
        assert block_in(context)
        resent = [*context.request["messages"], spoken("assistant", "STAGE_HOOK.")]
        await memory.prepare("s", {"messages": [*resent, spoken("user", "Thanks, go on.")]})
        await memory.settle()
        stored = [message.text for message in await memory.messages("s", limit=100)]
    assert "Thanks, go on." in stored
    assert not any("<recalled-context" in text for text in stored)


@pytest.mark.parametrize("kind", ["tool_use", "toolUse", "toolCall", "functionCall"])
async def test_every_spelling_of_a_call_keeps_its_result(tmp_path: Path, kind: str) -> None:
    filler = [
        spoken(("user", "assistant")[at % 2], f"note {at} about the hoist " * 300)
        for at in range(40)
    ]
    id_key = {"toolUse": "toolUseId", "toolCall": "toolCallId"}.get(kind, "tool_use_id")
    call = {"type": kind, "id": "c1", "name": "read", "input": {"path": "crane.txt"}}
    result = {"type": "tool_result", id_key: "c1", "content": "the crane lifts forty tons"}
    pair = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    talk = [spoken("user", "read the file"), *pair, spoken("assistant", "done"), *filler]
    talk.append(spoken("user", "zanzibar quetzal"))
    memory = open_memory(
        store=tmp_path / "m.db", preset="openclaw", window_tokens=60_000, clock=Clock(START)
    )
    context = await memory.prepare("s", {"messages": talk})
    await memory.close()
    sent = json.dumps(context.request["messages"])
    assert len(context.request["messages"]) < len(talk)
    assert ('"c1", "name"' in sent) == ("the crane lifts forty tons" in sent)


@pytest.mark.parametrize(
    ("cap", "parts"),
    [(4_000, {"knowledge", "detail"}), (60, {"knowledge"}), (30, set())],
)
def test_over_the_cap_details_leave_the_block_first(
    tmp_path: Path, cap: int, parts: set[str]
) -> None:
    asking = [spoken("user", ASKED)]
    context = asyncio.run(
        live(
            tmp_path,
            TALK,
            asking,
            now=START + 10 * DAY,
            facts=FACTS,
            **{"recall.hard_cap_tokens": cap, "recall.block_tokens": cap},
        )
    )
    block = block_in(context)
    assert set(re.findall(r"<(knowledge|detail)>", block)) == parts
    assert tokens(block) <= cap


async def test_opening_is_lazy_and_vectors_persist(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    settings: dict[str, Any] = {"recall.embedder": "hash"}
    async with open_memory(store=path, settings=settings) as memory:
        assert not path.exists(), "nothing is opened before it is used"
        await memory.prepare("s", {"messages": [spoken(o.role, o.text) for o in TALK]})
        await memory.settle()
    for _ in range(2):
        async with open_memory(store=path, settings=settings) as memory:
            vectors = (await memory.stats()).vectors
            assert vectors == {"hash:openclaw-384": len(TALK)}


def test_a_token_is_three_characters(commands: Commands) -> None:
    texts = ["a" * 100, "我们决定" * 7, "x = {'a': 1}\n" * 31]
    (commands.folder / "talk.json").write_text(json.dumps([spoken("user", one) for one in texts]))
    commands.run("import", commands.folder / "talk.json", RECOLLECT_PRESET="openclaw")
    counts = [line["tokens"] for line in commands.exported("segments.jsonl")]
    frame = 4  # tokens of a message's role
    assert counts == [math.ceil(len(text) / 3) + frame for text in texts]


def test_a_fact_that_shares_a_rare_word_is_before_those_that_share_common_ones(
    commands: Commands,
) -> None:
    for number in range(30):
        commands.run("facts", "add", f"The harbor crane number {number} is greased on Mondays")
    commands.run("facts", "add", "The pelican is fed at noon", "--type", "config")
    found = commands.json("memory", "search", "harbor", "crane", "pelican")["facts"]
    assert "pelican" in found[0]["content"]


def test_chinese_is_searched_by_pairs_of_characters(commands: Commands) -> None:
    commands.take(
        spoken("user", "退款逻辑还没有实现，先做支付回调。"),
        spoken("assistant", "好的，我先实现支付回调的签名校验。"),
        *(spoken(("user", "assistant")[n % 2], f"今天的天气第{n}次记录") for n in range(8)),
    )
    hits = commands.json("memory", "search", "签名校验")["hits"]
    assert "签名校验" in hits[0]["passage"]
    commands.run("facts", "add", "支付使用微信接口")
    assert commands.json("memory", "search", "微信接口")["facts"]


NOISE = [
    "Read HEARTBEAT.md if it exists. If nothing needs attention, reply HEARTBEAT_OK.",
    "NO_REPLY",
    "HEARTBEAT_OK",
    "[Queued messages while agent was busy] zanzibar quetzal",
    "ok",
    '[Audio] {"file_key": "file_v3_zanzibarquetzal", "duration": 3}',
    "[Audio] UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQzanzibarquetzal",
]


@pytest.mark.parametrize("text", NOISE)
def test_noise_is_stored_and_never_found(commands: Commands, text: str) -> None:
    told = commands.take(spoken("user", text), spoken("assistant", "All cranes are greased."))
    assert told["totals"]["noise"] == 1
    word = max(re.findall(r"[A-Za-z]{3,}", text) or ["ok then"], key=len)
    hits = commands.json("memory", "search", word, "greased")["hits"]
    assert [hit["role"] for hit in hits] == ["assistant"]
    assert commands.exported("segments.jsonl")[0]["content"] == text


def test_a_channels_prefix_is_not_recalled(tmp_path: Path) -> None:
    archive = [Said(one.at, one.role, CHANNEL * (one.role == "user") + one.text) for one in TALK]
    asking = [spoken("user", ASKED)]
    context = asyncio.run(live(tmp_path, archive, asking, now=START + 10 * DAY))
    assert TALK[2].text in block_in(context)
    assert "Feishu" not in block_in(context)


@pytest.mark.parametrize(
    "secret",
    [
        "Authorization: Bearer Zq7Rw2Lk9Pf4Xv8BmN3c",
        'apiKey: "Zq7Rw2Lk9Pf4Xv8BmN3c"',
        "api_key=Zq7Rw2Lk9Pf4Xv8BmN3c",
        "token=Zq7Rw2Lk9Pf4Xv8BmN3c",
    ],
)
def test_secrets_are_masked_before_they_reach_the_disk(commands: Commands, secret: str) -> None:
    commands.take(spoken("user", f"here it is, {secret} and go on"))
    (line,) = commands.exported("segments.jsonl")
    assert "Zq7Rw2Lk9" not in str(line)
    assert "go on" in line["content"]
    assert not any(b"Zq7Rw2Lk9" in path.read_bytes() for path in commands.folder.glob("memory.db*"))


def test_personal_data_is_masked_on_request(commands: Commands) -> None:
    text = "write to anna.bell@example.org or call +44 7911 123456"
    commands.take(spoken("user", text))
    assert commands.exported("segments.jsonl")[0]["content"] == text
    commands.folder = commands.folder / "masked"
    commands.folder.mkdir()
    commands.url = str(commands.folder / "memory.db")
    (commands.folder / "talk.json").write_text(json.dumps([spoken("user", text)]))
    commands.run("import", commands.folder / "talk.json", RECOLLECT_REDACTION__PII="true")
    (line,) = commands.exported("segments.jsonl")
    assert "anna.bell" not in line["content"]
    assert "7911" not in line["content"]


def test_the_weights_of_the_score_can_be_set(commands: Commands) -> None:
    commands.take(*(spoken(one.role, one.text) for one in TALK))
    scores = []
    for vector, text in (("0.7", "0.3"), ("0.2", "0.8")):
        env = {
            "RECOLLECT_PRESET": "openclaw",
            "RECOLLECT_RECALL__MIN_SCORE": "0.1",
            "RECOLLECT_RECALL__HYBRID__VECTOR_WEIGHT": vector,
            "RECOLLECT_RECALL__HYBRID__TEXT_WEIGHT": text,
        }
        commands.run("memory", "reindex", **env)
        hits = commands.json("memory", "search", ASKED, **env)["hits"]
        scores.append({hit["passage"]: hit["score"] for hit in hits})
    assert scores[0].keys() & scores[1].keys()
    assert all(scores[0][text] != scores[1][text] for text in scores[0].keys() & scores[1].keys())


async def test_a_model_that_wants_a_fact_deleted_deletes_none(tmp_path: Path) -> None:
    """Extraction only adds and replaces: whatever else a model answers has no effect."""
    port = "Remember that the staging API listens on port 8443."
    answers: list[str] = []

    async def reader(prompt: Any) -> str:
        answers.append(prompt.text)
        fact = {"type": "config", "content": "The staging API listens on port 8443", "quote": port}
        orders = [{**fact, "operation": "DELETE"}, {"operation": "DELETE", "content": "8443"}]
        return json.dumps({"facts": orders, "delete": ["8443"], "operations": ["DELETE"]})

    clock = Clock(START)
    async with open_memory(store=tmp_path / "m.db", extraction_model=reader, clock=clock) as memory:
        facts = await memory.facts()
        await facts.add("The staging API listens on port 8443")
        await memory.prepare("s", {"messages": [spoken("user", port)]})
        await memory.settle()
        clock.seconds += 3_600
        await memory.prepare("t", {"messages": [spoken("user", "hello there")]})
        for _ in range(200):
            if answers:
                break
            await asyncio.sleep(0.05)
        await memory.settle()
        assert answers, "the model was not asked"
        assert [fact.content for fact in await facts.list()] == [
            "The staging API listens on port 8443"
        ]


SECRET = "ghp_" + "Zq8vT3xW5yB7nM2kL9jH4gF6dS1aP0oIuYtR"


@pytest.mark.parametrize(
    "text",
    [
        "Good morning! How are you today?",
        "Maybe we could use Redis for the queue some day, I am not sure.",
        f"The deploy token is {SECRET}",
    ],
)
async def test_greetings_guesses_and_secrets_become_no_facts(tmp_path: Path, text: str) -> None:
    asked: list[str] = []

    async def reader(prompt: Any) -> str:
        asked.append(prompt.text)
        fact = {"type": "decision", "content": text, "quote": text, "context": ""}
        return json.dumps({"facts": [fact]})

    clock = Clock(START)
    async with open_memory(store=tmp_path / "m.db", extraction_model=reader, clock=clock) as memory:
        await memory.prepare("s", {"messages": [spoken("user", text)]})
        await memory.settle()
        clock.seconds += 3_600
        await memory.prepare("t", {"messages": [spoken("user", "hello there")]})
        await memory.settle()
        for _ in range(60):
            if asked:
                break
            await asyncio.sleep(0.05)
        await memory.settle()
        assert not await (await memory.facts()).list()
    assert not any(SECRET in prompt for prompt in asked)


async def test_a_session_has_one_runtime_and_its_turns_come_one_after_the_other(
    tmp_path: Path,
) -> None:
    async with open_memory(store=tmp_path / "m.db") as memory:
        assert memory.session("s") is memory.session("s")
        assert memory.session("s") is not memory.session("t")
        talk = [spoken("user", "first")]
        bodies = [{"messages": talk + [spoken("assistant", "a"), spoken("user", "b")] * n}
                  for n in range(6)]  # fmt: skip
        contexts = await asyncio.gather(*(memory.prepare("s", body) for body in bodies))
        assert sorted(context.report.turn for context in contexts) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("damage", ["a folder", "no database"])
async def test_a_memory_that_fails_stops_neither_a_turn_nor_a_compaction(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "m.db"
    if damage == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"this is no database " * 500)
    talk = [
        spoken(("user", "assistant")[at % 2], f"note {at} about the hoist " * 60)
        for at in range(31)
    ]

    async def model(prompt: Any) -> str:
        return notes(prompt)

    async with open_memory(store=path, model=model, window_tokens=16_000) as memory:
        context = await memory.prepare("s", {"messages": talk[:3]})
        assert context.request["messages"] == talk[:3]
        assert context.report.failures, "the failure is reported"
        await memory.observe("s", {"role": "assistant", "content": "fine"})
        await memory.compact("s", {"messages": talk})
        after = await memory.prepare("s", {"messages": talk})
        assert violations("anthropic", after.request) == []


def test_a_flat_log_is_imported_with_its_tool_lines(commands: Commands) -> None:
    """The four lines of the document on sessions."""
    lines = [
        {"role": "user", "content": "Hello", "timestamp": "2026-01-26T10:00:00Z"},
        {"role": "assistant", "content": "Hi there!", "timestamp": "2026-01-26T10:00:01Z"},
        {"role": "tool_call", "name": "read", "params": {"path": "file.txt"}, "timestamp": "..."},
        {"role": "tool_result", "name": "read", "content": "zanzibar", "timestamp": "..."},
    ]
    path = commands.folder / "flat.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = commands.json("import", path)["totals"]
    assert (told["read"], told["stored"], told["passed_over"]) == (4, 4, 0)
    texts = [line["content"] for line in commands.exported("segments.jsonl")]
    assert texts == ["Hello", "Hi there!", 'read({"path":"file.txt"})', "zanzibar"]
    roles = [line["role"] for line in commands.exported("segments.jsonl")]
    assert roles == ["user", "assistant", "assistant", "tool"]


def write_openclaws_folder(folder: Path, count: int = 40) -> None:
    """`~/.openclaw/memory/context`, laid out by hand."""
    folder.mkdir()
    segments = [
        {
            "id": f"5f0e{number:04d}-0000-4000-8000-000000000000",
            "sessionId": f"session-{number % 2}",
            "timestamp": 1_771_000_000_000 + number,
            "role": ("user", "assistant")[number % 2],
            "content": f"消息 {number}: the crane “hoist” lifts {number} tons",
            "tokens": 12,
            "metadata": {"topics": ["支付"] if number % 3 else [], "entities": []},
        }
        for number in range(count)
    ]
    facts = [
        {"id": "f1", "type": "config", "content": "Port 8443", "context": "",
         "timestamp": 1_771_000_000_000, "supersededBy": "f2"},
        {"id": "f2", "type": "config", "content": "Port 9000", "context": "",
         "timestamp": 1_771_000_000_001, "confidence": 0.85},
    ]  # fmt: skip
    for name, lines in (("segments.jsonl", segments), ("knowledge.jsonl", facts)):
        spelled = [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in lines]
        (folder / name).write_text("".join(f"{line}\n" for line in spelled), "utf-8")
    vectors = segments[::-2]
    data = b"VMEM" + struct.pack("<III", 1, 384, len(vectors))  # a header of 16 bytes
    for number, segment in enumerate(vectors):
        id_ = str(segment["id"]).encode()
        row = [(number + place) / 1000 for place in range(384)]
        data += struct.pack("<H", len(id_)) + id_ + struct.pack("<384f", *row)
    (folder / "vectors.bin").write_bytes(data)


def test_openclaws_folder_comes_back_byte_for_byte(commands: Commands) -> None:
    given, out = commands.folder / "context", commands.folder / "out"
    write_openclaws_folder(given)
    told = commands.json("import", given)
    assert (told["totals"]["stored"], told["totals"]["facts"]) == (40, 2)
    again = commands.json("import", given)["totals"]
    assert (again["stored"], again["known"]) == (0, 40), "nothing is stored twice"
    commands.run("export", out)
    names = ["knowledge.jsonl", "segments.jsonl", "vectors.bin"]
    assert sorted(path.name for path in out.iterdir()) == names
    for name in names:
        assert (out / name).read_bytes() == (given / name).read_bytes(), name
    assert [one["content"] for one in commands.json("facts", "list")["facts"]] == ["Port 9000"]
