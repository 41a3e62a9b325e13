"""The model that the facts bench asks on demand: a server, the settings' own, or weights.

Owns how it is reached and what of it is counted. Must never reach anything that was not named on
the command line or in the settings, and never fetch weights. Always holds: a server that was
started here ends with the run.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from recollect.config import load_settings
from recollect.errors import RecollectError, SettingsError
from recollect.ports import Model
from recollect.providers.openai import OpenAIChatModel
from recollect.values.model import Answer, Prompt
from recollect.wiring.models import choose_model
from recollect_bench.llama_server import LlamaMissingError, LlamaServer

OF_SETTINGS: Final = "settings"
CALL_SECONDS: Final = 900.0
"""A small model on two cores reads and writes some ten tokens a second."""
WINDOW_TOKENS: Final = 8192
"""Of a server that is started here: a case, its instructions and an answer fit twice."""


class TimedModel:
    """A model that is looked at: how often it was asked, for how long, for how many tokens."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.calls = 0
        self.seconds = 0.0
        self.input_tokens = 0
        self.output_tokens = 0

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    @property
    def window_tokens(self) -> int | None:
        """The model's own."""
        return self._model.window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """Ask, and count it; one that failed took its time, too."""
        self.calls += 1
        started = time.perf_counter()
        try:
            answer = await self._model.ask(prompt)
        finally:
            self.seconds += time.perf_counter() - started
        if answer.usage is not None:
            self.input_tokens += answer.usage.input_tokens
            self.output_tokens += answer.usage.output_tokens
        return answer

    async def close(self) -> None:
        """Give back the model's connections."""
        await self._model.close()


@asynccontextmanager
async def opened_model(named: str | None, gguf: Path | None) -> AsyncIterator[TimedModel]:
    """The model at a URL, of the settings, or of a file of weights."""
    if gguf is not None:
        with _server(gguf) as server:
            async with _closing(_at(server.base_url, server.gguf.stem, WINDOW_TOKENS)) as model:
                yield model
        return
    assert named is not None
    async with _closing(_of_settings() if named == OF_SETTINGS else _at(named, "default")) as model:
        yield model


def _server(gguf: Path) -> LlamaServer:
    if not gguf.is_file():
        raise RecollectError("--gguf names a file that is not there")
    try:
        return LlamaServer(gguf, window_tokens=WINDOW_TOKENS)
    except LlamaMissingError as missing:
        raise RecollectError(str(missing)) from missing


@asynccontextmanager
async def _closing(model: Model) -> AsyncIterator[TimedModel]:
    try:
        yield TimedModel(model)
    finally:
        await model.close()


def _at(url: str, name: str, window_tokens: int | None = None) -> Model:
    return OpenAIChatModel(
        model=name, base_url=url, deadline_seconds=CALL_SECONDS, window_tokens=window_tokens
    )


def _of_settings() -> Model:
    model = choose_model(load_settings().settings, "extraction")
    if model is None:
        raise SettingsError(
            "the settings name no model: set models.provider and models.extraction, or give "
            "--model the URL of a server that speaks Chat Completions"
        )
    return model
