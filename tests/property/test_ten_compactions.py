"""Ten compactions in a row: no message vanishes, every request is valid, each one ends.

A hook hears what each compaction summarises; put together, the ranges are exactly the messages
before the newest cut, in order and each once. Generated sessions of every wire format and both pi
transcripts (one of them in CI), at windows from 4k to 1M.
"""

import asyncio
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conversations.strategies import bodies
from tests.property.test_every_request import FORMATS, refused
from tests.replay.test_recordings import PI
from tests.sizes import at_size

from recollect.core.engine import Engine, Session
from recollect.core.formats.transcripts import read_transcripts
from recollect.core.values.compaction import CompactionResult
from recollect.core.values.edit import Insert
from recollect.core.values.history import behind_cut
from recollect.core.values.model import Answer, FormatName, Prompt
from recollect.system.config import build

COMPACTIONS = 10
EXAMPLES = at_size(ci=5, full=25)
WINDOWS = (4_000, 16_000, 64_000, 200_000, 1_000_000)


class Scribe:
    """A model that writes short summaries, each its own."""

    name = "scribe"
    window_tokens = None

    def __init__(self) -> None:
        self.calls = 0
        self.prompts: list[str] = []

    async def ask(self, prompt: Prompt) -> Answer:
        self.calls += 1
        self.prompts.append(prompt.text)
        return Answer(text=f"Reached waypoint {self.calls}; ledger tidy, harbour calm.")

    async def close(self) -> None:
        pass


class Compacted:
    """One session that is compacted again and again, and what was summarized of it."""

    def __init__(self, window: int, format_name: FormatName) -> None:
        self.format_name = format_name
        chosen = {"window_tokens": window, "compaction.audit": False}
        self.model = Scribe()
        self.engine = Engine(build(chosen), model=self.model, compact_in_background=False)
        self.session = Session("s")
        self.heard: list[list[Any]] = []
        self.covered: list[Any] = []
        self.reduced = 0
        self.engine.on("session_before_compact", self._hear)

    def _hear(self, event: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        told = event["preparation"]
        self.heard.append([*told["messagesToSummarize"], *told["turnPrefixMessages"]])

    async def turn(self, body: Mapping[str, Any]) -> None:
        """Prepare, compact, prepare again; every check after every step."""
        await self._prepared(body)
        done = await self.engine.compact(self.session)
        self._ended_well(done)
        await self._prepared(body)

    def _ended_well(self, done: CompactionResult) -> None:
        too_short = "longer than the messages it replaces" in str(
            done.reason
        )  # our summary is a fixed one
        assert done.convergence in ("reduced", "irreducible") or too_short, done.reason
        assert str(done.reason)
        if done.convergence == "reduced":
            assert done.tokens_after < done.tokens_before
            assert done.compacted_messages > 0
            self.reduced += 1
        else:
            assert done.tokens_after == done.tokens_before

    async def _prepared(self, body: Mapping[str, Any]) -> None:
        cuts = self.session.state.compactions
        context = await self.engine.prepare(
            self.session, json.dumps(body).encode(), format=self.format_name
        )
        if context.compaction is not None and context.compaction.convergence == "reduced":
            self.reduced += 1
        assert self.session.state.compactions in (cuts, cuts + 1)
        if not context.report.entries:  # no message of it says anything: sent as it came
            return
        out = json.loads(context.request)
        assert refused(self.format_name, out) == []
        report = context.report
        behind = behind_cut(report.entries, report.edits)
        before = [json.loads(entry.raw) for entry in report.entries if entry.key in behind]
        self._settle_ranges()
        assert self.covered == before, "the ranges are what lies before the cut, each message once"
        for fate in report.fates():
            if fate.place is not None and fate.key in behind:
                assert fate.fate == "summarized"
            elif fate.place is not None:
                assert fate.fate != "summarized"
        blocks = [e for e in report.edits if isinstance(e, Insert) and e.stage != "stand"]
        assert not blocks, "nobody recalls here"

    def _settle_ranges(self) -> None:
        """What was heard counts once its cut stands."""
        made = self.session.state.compactions
        while len(self.heard) > made - self._counted:
            self.heard.pop(0)
        for one in self.heard:
            self.covered.extend(one)
            self._counted += 1
        self.heard.clear()

    _counted = 0


def grown(messages: Sequence[Any], steps: int) -> list[list[Any]]:
    """The history as it grows, in so many steps."""
    return [list(messages[: max(1, len(messages) * (n + 1) // steps)]) for n in range(steps)]


@pytest.mark.parametrize("format_name", FORMATS)
def test_no_message_vanishes(format_name: FormatName) -> None:
    reached: list[int] = []

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(bodies(format_name, max_messages=60), st.sampled_from(WINDOWS))
    def check(body: dict[str, Any], window: int) -> None:
        field = "input" if format_name == "openai-responses" else "messages"
        messages = body[field]
        if not isinstance(messages, list) or not messages:
            return

        async def run() -> None:
            compacted = Compacted(window, format_name)
            for history in grown(messages, COMPACTIONS):
                await compacted.turn({**body, field: history})
            reached.append(compacted.reduced)

        asyncio.run(run())

    check()
    assert max(reached) >= 5, "some of these sessions are long enough to be cut again and again"


PI_WINDOWS = (16_000, 64_000, 1_000_000)


@pytest.mark.parametrize(
    ("name", "window"),
    at_size(ci=[(PI[1], 16_000)], full=[(name, window) for window in PI_WINDOWS for name in PI]),
)
async def test_pi_transcripts_through_ten_compactions(data: Path, name: str, window: int) -> None:
    path = data / "transcripts" / name
    transcript = read_transcripts(gzip.decompress(path.read_bytes()))[0]
    messages = [json.loads(item.raw) for item in transcript.items if not item.derived]
    compacted = Compacted(window, "pi")
    for history in grown(messages, COMPACTIONS + 2):
        await compacted.turn({"messages": history})
    assert compacted.reduced >= COMPACTIONS


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_a_client_changes_before_a_cut_is_never_hidden(format_name: FormatName) -> None:
    hidden_ones: list[int] = []

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(bodies(format_name, max_messages=40), st.integers(0, 10**6), st.sampled_from(WINDOWS))
    def check(body: dict[str, Any], at: int, window: int) -> None:
        field = "input" if format_name == "openai-responses" else "messages"
        messages = body[field]
        if not isinstance(messages, list) or not messages:
            return
        fresh: dict[str, Any] = {"role": "user", "content": "An inserted note about berth-4711."}
        if format_name == "pi":
            fresh = {**fresh, "timestamp": 0}

        async def run() -> None:
            compacted = Compacted(window, format_name)
            await compacted.turn(body)
            if not compacted.reduced:
                return
            report = compacted.session.last_draft
            assert report is not None
            hidden_ones.append(len(behind_cut(report.entries, compacted.session.state.edits)))
            place = at % len(messages)
            changed = {**body, field: [*messages[:place], fresh, *messages[place:]]}
            for _ in range(2):
                context = await compacted.engine.prepare(
                    compacted.session, json.dumps(changed).encode(), format=format_name
                )
                prompts = "\n".join(compacted.model.prompts)
                said = context.request.decode() + prompts
                assert "berth-4711" in said, "shown, or read by the model that summarized it"
                await compacted.engine.compact(compacted.session)

        asyncio.run(run())

    check()
    assert max(hidden_ones) > 0
