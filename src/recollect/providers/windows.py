"""A model's window as its server states it, where it does.

Owns the fields under which servers tell it. Never fails and never guesses: no answer, an odd
answer and a window of training (`n_ctx_train`, which is not what was given to the server) are
all None. Asked once by whoever wants to know; nothing here runs by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from recollect.errors import FormatError
from recollect.formats.json_spans import decode
from recollect.providers.addresses import Address
from recollect.providers.calls import Calls

_FIELDS: Final = (
    "loaded_context_length",  # LM Studio: what the model was loaded with
    "max_model_len",  # vLLM
    "context_length",  # OpenRouter, Together
    "context_window",  # Groq
    "max_context_length",  # Mistral
    "max_input_tokens",  # Anthropic
    "n_ctx",  # llama.cpp, under `meta`
)


async def ask_window(calls: Calls, address: Address, model: str) -> int | None:
    """The window that the server states for this model: in its list, or as llama.cpp does."""
    listed = await _listed(calls, address, model)
    # Of llama.cpp's list only newer servers state it, and there for all slots together.
    beside = await _props(calls, address) if not address.own else None
    stated = [tokens for tokens in (listed, beside) if tokens is not None]
    return min(stated, default=None)


async def ask_model_window(calls: Calls, address: Address, model: str) -> int | None:
    """The window that the server states under the model's own address, as Anthropic does."""
    stated = _window(await _look(calls, address.url(f"/models/{quote(model, safe='')}")))
    return stated if stated or address.own else await ask_window(calls, address, model)


async def _listed(calls: Calls, address: Address, model: str) -> int | None:
    answer = await _look(calls, address.url("/models"))
    rows = answer.get("data")
    models = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    named = [row for row in models if model in _names(row)]
    # A server of one model answers to any name.
    chosen = named or (models if len(models) == 1 else [])
    return _window(chosen[0]) if chosen else None


async def _props(calls: Calls, address: Address) -> int | None:
    answer = await _look(calls, address.root_url("/props"))
    return _window(_mapping(answer.get("default_generation_settings")))


def _names(row: Mapping[str, Any]) -> list[Any]:
    aliases = row.get("aliases")
    return [row.get("id"), *(aliases if isinstance(aliases, list) else ())]


def _window(row: Mapping[str, Any]) -> int | None:
    for place in (row, _mapping(row.get("top_provider")), _mapping(row.get("meta"))):
        for name in _FIELDS:
            value = place.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


async def _look(calls: Calls, url: str) -> Mapping[str, Any]:
    content = await calls.look(url)
    try:
        return _mapping(decode(content)) if content is not None else {}
    except FormatError:
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
