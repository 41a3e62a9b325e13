"""Prices: dollars per model, and the tokens that an edit saves and costs. An edit invalidates the
provider's cache from its position on, and makes every later request smaller."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from recollect.core.values.history import CacheUse
from recollect.core.values.model import FormatName, Usage
from recollect.errors import SettingsError

MILLION: Final = 1_000_000  # prices are per million tokens
UNCACHED_REQUESTS: Final = 3
"""After this many requests in a row without cache reads or writes, Recollect assumes no cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePrice:
    """Price of cached input, relative to uncached input."""

    read: float
    write: float


CACHE_PRICES: Final[Mapping[str, CachePrice]] = {
    "anthropic": CachePrice(read=0.1, write=1.25),
    "openai-chat": CachePrice(read=0.25, write=1.0),
    "openai-responses": CachePrice(read=0.25, write=1.0),
    "pi": CachePrice(read=0.1, write=1.25),
}
"""Published prices, relative to uncached input. OpenAI's cache reads cost 0.1 to 0.5 depending on
the model; its writes cost nothing extra."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPrice:
    """Tokens that an edit saves and costs, converted to input tokens at full price."""

    saves: float
    breaks: float
    requests: int
    """Expected number of requests until the window must be edited anyway."""

    @property
    def pays(self) -> bool:
        return self.saves > self.breaks


def is_uncached(use: CacheUse) -> bool:
    """Return whether the provider's cache seems to hold nothing of this session."""
    return use.misses >= UNCACHED_REQUESTS


def price_edit(
    format_name: FormatName,
    use: CacheUse,
    *,
    freed_tokens: int,
    before_tokens: int,
    used_tokens: int,
    history_tokens: int,
    limit_tokens: int,
    requests: int,
) -> EditPrice:
    """Estimate the price of an edit that frees tokens after the first `before_tokens`. So far,
    `requests` requests produced a history of `history_tokens`. As many more requests are expected,
    but no more than fit the window, because an edit batch is due anyway when the window is full."""
    price = CACHE_PRICES[format_name]
    pace = max(1.0, history_tokens / max(1, requests))
    expected_requests = max(
        1, min(requests, int((limit_tokens - used_tokens + freed_tokens) / pace))
    )
    if is_uncached(use) or not requests:
        return EditPrice(
            saves=float(freed_tokens * expected_requests), breaks=0.0, requests=expected_requests
        )
    cached_tokens = used_tokens if use.held_tokens is None else min(use.held_tokens, used_tokens)
    rewritten_tokens = max(0, cached_tokens - before_tokens - freed_tokens)
    return EditPrice(
        saves=freed_tokens * price.read * expected_requests,
        breaks=rewritten_tokens * (price.write - price.read),
        requests=expected_requests,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """Dollars per million tokens."""

    input: float
    output: float
    read: float
    write: float

    def of(self, usage: Usage) -> float:
        """Return the dollars that these tokens cost."""
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        return (
            max(0, plain) * self.input
            + usage.cache_read_tokens * self.read
            + usage.cache_write_tokens * self.write
            + usage.output_tokens * self.output
        ) / MILLION


_VERSION: Final = re.compile(r"(-(latest|preview|\d{4}-?\d\d-?\d\d))?")
PriceList: TypeAlias = tuple[tuple[str, ModelPrice], ...]
"""Prices by the model's name without its date. The longest matching name is used."""


def read_prices(lines: Sequence[str]) -> PriceList:
    """Read the prices of the setting `models.prices`. Raise SettingsError for an invalid line."""
    return tuple(_read_price(line) for line in lines)


def _read_price(line: str) -> tuple[str, ModelPrice]:
    name, *numbers = line.split() or [""]
    try:
        plain, output, *cache_prices = (float(number) for number in numbers)
        read, write = (*cache_prices, *(plain, plain)[len(cache_prices) :])
    except ValueError:
        plain = output = read = write = math.nan
    if not all(0 <= price < math.inf for price in (plain, output, read, write)):
        raise SettingsError(
            f"models.prices: {line!r} is not a price: write a model's name, then the dollars per "
            "million tokens of input and of output, and of cache reads and writes if they differ"
        )
    return name.lower(), ModelPrice(input=plain, output=output, read=read, write=write)


_PRICES: Final = read_prices(
    Path(__file__).with_name("model_prices.txt").read_text("utf-8").splitlines()
)
"""Published prices, one line per model, written like the setting `models.prices`."""


def _is_of(name: str, listed_name: str) -> bool:
    suffix = name.removeprefix(listed_name)
    return name.startswith(listed_name) and (
        listed_name[-1] == "-" or _VERSION.fullmatch(suffix) is not None
    )


def model_price(model: str | None, user_prices: PriceList = ()) -> ModelPrice | None:
    """Return the price of a model: the user's own, else its list price; None if unknown."""
    name = (model or "").rpartition("/")[2].lower()
    for prices in (user_prices, _PRICES):
        matches = [(len(prefix), price) for prefix, price in prices if _is_of(name, prefix)]
        if matches:
            return max(matches, key=lambda match: match[0])[1]
    return None
