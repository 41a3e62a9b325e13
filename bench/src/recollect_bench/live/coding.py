"""Coding sessions as they were recorded: is what was said about a thing still there when needed?

Real transcripts go through the engine turn by turn, as in `bench cost`, and each message that the
user or the model wrote, arguments of calls included, is held against the request just before it:
for every name in it that no message in that request says any more, whether a summary or a recalled
block *tells* about it (`useful`) or at least *names* it (`name_there`). `bench.cost.relied` says
which earlier line a message relies on and when it counts as told; names about which nothing was
said that the message uses do not count. `billed` is against plain compaction of the same run.

Must never tune anything: the pi transcripts were tuned on, the Codex rollouts never. Nothing that
was said is kept or printed. Always holds: all strategies are metered alike.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from recollect_bench.cost.data import Conversation, count_bytes, load_conversations
from recollect_bench.cost.strategies import Tally, replay_engine, replay_plain

WINDOWS: Final[tuple[int, ...]] = (64_000, 128_000, 200_000)
HELD_OUT_WINDOWS: Final[tuple[int, ...]] = (32_000,)
"""The rollouts are short: only a small window ever fills."""
ORACLE_SHARE: Final = 0.03
"""Of the window, what the oracle may put behind a summary."""
PLAIN: Final = "plain compaction"
DEFAULT: Final = "default"
ORACLE: Final = "oracle"
_CODING: Final = ("pi", "codex")
NOTES: Final = (
    "useful: of the names that left the view and about which something was said that the message",
    "  relies on, the share for which half of the other content words of that line stand within",
    "  300 characters of the name in the request; name_there: the share whose name is there",
    "references: how many there were; they differ a little, because each strategy cuts elsewhere",
    "oracle: plain compaction that knows which lines will be needed, in 3% of the window",
    "billed: against plain compaction on the same transcript in the same run, priced as bench cost",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingRow:
    """What one strategy came to on one transcript in one window."""

    transcript: str
    held_out: bool
    window_tokens: int
    strategy: str
    references: int
    useful: float | None
    """None where nothing that is needed later left the window."""
    name_there: float | None
    billed: float


def run_coding(
    progress: Any = lambda *_: None,
    *,
    windows: Sequence[int] = WINDOWS,
    held_out_windows: Sequence[int] = HELD_OUT_WINDOWS,
    conversations: Sequence[Conversation] | None = None,
    oracle: bool = True,
) -> list[CodingRow]:
    """Replay every coding session in every window: plain compaction, the engine, an oracle."""
    held = load_conversations() if conversations is None else conversations
    coding = [
        conversation
        for conversation in held
        if conversations or conversation.name.startswith(_CODING)
    ]
    jobs = [
        (conversation, window)
        for conversation in coding
        for window in (held_out_windows if conversation.held_out else windows)
    ]
    rows: list[CodingRow] = []
    for done, (conversation, window) in enumerate(jobs):
        progress(f"{conversation.name} at {window // 1000}k", done, len(jobs))
        plain = replay_plain(conversation, window)
        tallies = {PLAIN: plain, DEFAULT: asyncio.run(replay_engine(conversation, window))}
        if oracle:
            tallies[ORACLE] = replay_plain(
                conversation, window, behind=_oracle(conversation, window)
            )
        rows += [_row(conversation, window, who, tally, plain) for who, tally in tallies.items()]
    return rows


def figures_of(rows: Sequence[CodingRow], strategy: str = DEFAULT) -> dict[str, float]:
    """The figures of a strategy by their names, as `--json` prints them."""
    figures: dict[str, float] = {}
    for row in rows:
        if row.strategy == strategy:
            end = f"{row.window_tokens // 1000}k.{row.transcript}"
            figures[f"references_{end}"] = row.references
            figures[f"billed_{end}"] = row.billed
            if row.useful is not None and row.name_there is not None:
                figures[f"useful_{end}"] = row.useful
                figures[f"name_there_{end}"] = row.name_there
    return figures


def _row(
    conversation: Conversation, window: int, who: str, tally: Tally, plain: Tally
) -> CodingRow:
    there = tally.named / tally.relied if tally.relied else None
    return CodingRow(
        transcript=conversation.name,
        held_out=conversation.held_out,
        window_tokens=window,
        strategy=who,
        references=tally.relied,
        useful=None if tally.useful_share is None else round(tally.useful_share, 4),
        name_there=None if there is None else round(there, 4),
        billed=round(tally.cost / plain.cost, 4),
    )


def _oracle(conversation: Conversation, window_tokens: int) -> Callable[[int, int], str]:
    """The lines that messages will rely on from a moment on, the first needed first."""
    most = int(window_tokens * ORACLE_SHARE)

    def lines(moment: int, cut: int) -> str:
        told: dict[str, None] = {}
        room = most
        for later in conversation.moments[moment:]:
            for target in later.targets:
                for name in target.names:
                    line = conversation.relied.of(name, target.row, target.end)
                    if line is None or line.row >= cut or line.text in told:
                        continue
                    room -= count_bytes(f"{line.text}\n")
                    if room < 0:
                        return "\n".join(told)
                    told[line.text] = None
        return "\n".join(told)

    return lines


def _main() -> None:
    """The rows as lines of JSON; windows may be given."""
    windows = [int(given) for given in sys.argv[1:]] or WINDOWS
    for row in run_coding(windows=windows):
        sys.stdout.write(f"{json.dumps(asdict(row))}\n")


if __name__ == "__main__":
    _main()
