"""What a conversation came to: counts, never words of it.

Always holds: `faults` is empty exactly where the run showed what it is to show.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from recollect.core.values.compaction import CompactionResult
from tools.real_model.watched import Place, Watched


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One conversation."""

    model: str = ""
    window_tokens: int = 0
    turns: int = 0
    failed_turns: int = 0
    recovered: int = 0
    """Requests that were refused for their size, in turns that came to their end."""
    said_tokens: int = 0
    """What user and model said, as the model counts it."""
    compactions: list[CompactionResult] = field(default_factory=list, repr=False)
    places: list[Place] = field(default_factory=list)
    """Where each thing that was asked for stood in the request that went out."""
    flushes: Counter[str] = field(default_factory=Counter)
    watched: Watched = field(default_factory=Watched)
    seconds: float = 0.0
    troubles: list[str] = field(default_factory=list)

    def ended(self, how: str) -> int:
        """How many compactions ended so."""
        return sum(1 for one in self.compactions if one.convergence == how)

    @property
    def found(self) -> int:
        """How much of what was asked for was in the view."""
        return sum(1 for place in self.places if place != "nowhere")

    @property
    def faults(self) -> list[str]:
        """What the run did not show, one sentence each."""
        said = [
            (self.failed_turns > 0, f"{self.failed_turns} turns failed"),
            (self.recovered == 0, "no overflow was recovered from"),
            (self.ended("reduced") == 0, "no compaction made the view smaller"),
            (not self.places, "nothing was asked for"),
            (self.found < len(self.places), f"{len(self.places) - self.found} not in the view"),
            (self.watched.pieces <= self.turns, "the replies did not stream"),
        ]
        return [one for is_so, one in said if is_so]

    def figures(self) -> dict[str, Any]:
        """The run as flat numbers."""
        return {
            "model": self.model,
            "window_tokens": self.window_tokens,
            "turns": self.turns,
            "failed_turns": self.failed_turns,
            "said_tokens": self.said_tokens,
            "requests": self.watched.requests,
            "overflows": self.watched.overflows,
            "overflows_recovered": self.recovered,
            "compactions_reduced": self.ended("reduced"),
            "compactions_irreducible": self.ended("irreducible"),
            "compactions_failed": self.ended("failed"),
            "summary_calls": self.watched.asked,
            "summary_calls_most": sum(one.spent.max_calls for one in self.compactions),
            "planted_asked": len(self.places),
            "planted_in_view": self.found,
            **{f"planted_{place}": self.places.count(place) for place in PLACES},
            **{f"flush_{how}": count for how, count in sorted(self.flushes.items())},
            "streamed_pieces": self.watched.pieces,
            "read_tokens": self.watched.input_tokens,
            "written_tokens": self.watched.output_tokens,
            "seconds": round(self.seconds, 1),
        }

    def as_json(self) -> dict[str, Any]:
        """The figures, and how every compaction ended."""
        ends = [
            {
                "convergence": one.convergence,
                "trigger": one.trigger,
                "reason": str(one.reason),
                "tokens_before": one.tokens_before,
                "tokens_after": one.tokens_after,
                "spent": asdict(one.spent),
                "notes": list(one.notes),
                "seconds": round(one.seconds, 1),
            }
            for one in self.compactions
        ]
        return {
            "run": "real-model",
            "figures": self.figures(),
            "compactions": ends,
            "faults": self.faults,
            "troubles": self.troubles,
        }

    def table(self) -> str:
        """The figures to read."""
        rows = [f"{name:<26} {value}" for name, value in self.figures().items()]
        ends = [
            f"  {one.convergence} ({one.trigger}, {one.spent.calls} calls, {one.seconds:.0f} s): "
            f"{one.tokens_before} to {one.tokens_after} tokens; {one.reason}"
            + "".join(f"; {note}" for note in one.notes)
            for one in self.compactions
        ]
        faults = [f"FAULT: {one}" for one in self.faults]
        return "\n".join([*rows, "compactions:", *ends, *self.troubles, *faults])


PLACES: tuple[Place, ...] = ("kept", "summary", "recalled", "nowhere")
