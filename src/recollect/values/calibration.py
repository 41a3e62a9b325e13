"""Placeholder until the token helper lands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """x"""

    ratio: float = 1.0
    samples: int = 0
    reported_tokens: int | None = None
    estimated_tokens: int | None = None

    def learn(self, *, estimated_tokens: int, reported_tokens: int) -> Calibration:
        """x"""
        return Calibration(
            ratio=reported_tokens / max(1, estimated_tokens),
            samples=self.samples + 1,
            reported_tokens=reported_tokens,
            estimated_tokens=estimated_tokens,
        )

    def apply(self, estimated_tokens: int) -> int:
        """x"""
        if self.reported_tokens is None or self.estimated_tokens is None:
            return round(self.ratio * estimated_tokens)
        return max(
            0, round(self.reported_tokens + self.ratio * (estimated_tokens - self.estimated_tokens))
        )
