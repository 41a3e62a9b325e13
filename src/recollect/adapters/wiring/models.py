"""Builds language models and embedders from settings.

This module imports no HTTP client or other heavy package. A model connects with its first prompt,
and an embedder loads in a thread. Recollect sends nothing over the network unless the settings name
a provider. The embedder setting "auto" never fails. If only the hash embedder is available, "auto"
uses none, because hash vectors find no more than words do."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

from recollect.adapters.embedders.local import HashEmbedder, StaticEmbedder
from recollect.adapters.embedders.onnx import (
    EXTRA,
    FEATURE,
    OFFERED_MODEL,
    OnnxEmbedder,
    are_packages_installed,
    find_models,
)
from recollect.core.ports import ChatModel, Embedder, Model
from recollect.core.rules.budget import window_of
from recollect.core.values.model import Answer, Prompt
from recollect.errors import EmbedderError, MissingExtra, ModelRefused, SettingsError
from recollect.system.config import Settings
from recollect.system.config.settings import ProviderFormat
from recollect.system.places import models_folders

if TYPE_CHECKING:
    from recollect.adapters.providers.anthropic import AnthropicModel
    from recollect.adapters.providers.openai import OpenAIChatModel, OpenAIResponsesModel


class AnswersPrompts(Protocol):
    """The minimal interface of a caller's own model."""

    async def ask(self, prompt: Prompt) -> Answer | str: ...


OwnModel: TypeAlias = AnswersPrompts | Callable[[Prompt], Awaitable[Answer | str]]
"""A caller's own model: an object with `ask`, or an async function that answers prompts."""
ModelRole: TypeAlias = Literal["main", "summary", "extraction"]

_LOADED: dict[str, Embedder] = {}
ONNX_THREADS = 2
"""Number of cores that a local embedder may use. A turn embeds only one short text."""
KEY_VARIABLES: dict[ProviderFormat, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
}


class PlainModel:
    """Wraps a caller's model that has no method but `ask`."""

    def __init__(
        self,
        ask: Callable[[Prompt], Awaitable[Answer | str]],
        *,
        name: str = "",
        window_tokens: int | None = None,
    ) -> None:
        self._ask = ask
        self.name = name
        self.window_tokens = window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """Answer a prompt. If the caller's model returns a text, wrap it in an `Answer`."""
        answer = await self._ask(prompt)
        if isinstance(answer, Answer):
            return answer
        if isinstance(answer, str):
            return Answer(text=answer)
        raise ModelRefused(
            f"your model answered with a {type(answer).__name__}: return an Answer or a string"
        )

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def own_model(value: Any) -> Model:
    """Wrap a caller's model, an object or a function, as a `Model`. Raise TypeError otherwise."""
    ask = getattr(value, "ask", value)
    if isinstance(value, type) or not _is_async(ask):
        type_name = (
            f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        )
        raise TypeError(
            "a model is an object with `async def ask(self, prompt)`, or an async function of the "
            f"prompt, and {type_name} is neither"
        )
    if all(hasattr(value, part) for part in ("ask", "name", "window_tokens", "close")):
        model: Model = value
        return model
    name, window = getattr(value, "name", ""), getattr(value, "window_tokens", None)
    return PlainModel(
        ask,
        name=name if isinstance(name, str) else "",
        window_tokens=window if isinstance(window, int) and window > 0 else None,
    )


def _is_async(ask: Any) -> bool:
    call_method = getattr(ask, "__call__", None)  # noqa: B004 - an object may be called as a function is
    return inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(call_method)


def choose_model(settings: Settings, role: ModelRole) -> ChatModel | None:
    """Return the model for this role; None if the settings name no provider, or no model for the
    role. `models.main` also summarizes if `models.summary` is not set. `models.main` never extracts
    facts, because users who choose a model for a chat have not asked for that. Wrong settings raise
    SettingsError when a memory is opened, not later when its window is full."""
    models = settings.models
    name = getattr(models, role) or (models.main if role != "extraction" else None)
    if models.provider is None:
        if name is not None:
            key = "main" if getattr(models, role) is None else role
            raise SettingsError(
                f"models.{key} names a model, but models.provider is not set: set it to one of "
                f"{', '.join(KEY_VARIABLES)}"
            )
        return None
    if name is None:
        if all(getattr(models, model_role) is None for model_role in get_args(ModelRole)):
            raise SettingsError(
                f"models.provider is {models.provider!r}, but no model is named: set models.main, "
                "or models.summary for summaries alone"
            )
        return None
    if find_spec("httpx2") is None:
        raise MissingExtra(feature=f"models.provider = {models.provider!r}", extra="remote")
    # `window_tokens` may be smaller than the model's real window, so a reply to a larger request is
    # not treated as an overflow.
    window = window_of(name, replace(settings, window_tokens=None))
    return _adapter(models.provider)(
        model=name,
        key=_key(settings),
        base_url=models.base_url,
        deadline_seconds=models.deadline_seconds,
        window_tokens=None if window.source == "assumed" else window.tokens,
    )


def _key(settings: Settings) -> str | None:
    """Read the API key. A server with another URL gets a key only if the settings name one."""
    models = settings.models
    assert models.provider is not None
    if models.key_variable is not None:
        key = os.environ.get(models.key_variable)
        if not key:
            raise SettingsError(
                f"models.key_variable names {models.key_variable}, which is not set: set it in the "
                "environment, or name another"
            )
        return key
    if models.base_url is not None:
        return None
    usual = KEY_VARIABLES[models.provider]
    key = os.environ.get(usual)
    if not key:
        raise SettingsError(
            f"models.provider is {models.provider!r}, but {usual} is not set: set it in the "
            "environment, or set models.key_variable to another variable, or models.base_url to a "
            "server that needs no key"
        )
    return key


def _adapter(
    provider: ProviderFormat,
) -> type[AnthropicModel | OpenAIChatModel | OpenAIResponsesModel]:
    from recollect.adapters.providers.anthropic import AnthropicModel
    from recollect.adapters.providers.openai import OpenAIChatModel, OpenAIResponsesModel

    adapters = (AnthropicModel, OpenAIChatModel, OpenAIResponsesModel)
    return next(adapter for adapter in adapters if adapter.format == provider)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedders:
    """The embedders of a memory, and why they were chosen."""

    used: tuple[Embedder, ...] = ()
    """Embedders that embed every question, best first."""
    said: str = ""
    """A sentence that names the chosen embedders and the reason."""
    lacking: str = ""
    """The requested embedder that is missing, which every recall reports."""


def choose_embedders(settings: Settings) -> Embedders:
    """Return the embedders of these settings. Raise SettingsError if a model is missing,
    MissingExtra if a package is missing."""
    name = settings.recall.embedder
    if name == "remote":
        return Embedders(used=(_remote(settings),), said="remote")
    try:
        choice = choose(
            name,
            models=models_folders(),
            onnx_model=settings.recall.onnx_model,
            threads=min(ONNX_THREADS, os.cpu_count() or 1),
            hash_instead=settings.recall.method == "openclaw",
        )
    except MissingExtra as error:
        raise MissingExtra(feature=f"recall.embedder = {name!r}", extra=error.extra) from error
    except EmbedderError as error:
        raise SettingsError(f"recall.embedder: {error}") from error
    return replace(
        choice, used=tuple(_LOADED.setdefault(embedder.name, embedder) for embedder in choice.used)
    )


def _remote(settings: Settings) -> Embedder:
    from recollect.adapters.embedders.remote import RemoteEmbedder

    remote = settings.recall.remote
    if remote.provider is None:
        raise SettingsError(
            'recall.embedder is "remote", but recall.remote.provider is not set: set it to '
            "openai, gemini or voyage"
        )
    try:
        return RemoteEmbedder(
            remote.provider,
            model=remote.model,
            base_url=remote.base_url,
            key_variable=remote.key_variable,
        )
    except EmbedderError as error:
        raise SettingsError(f"recall.remote: {error}") from error


MEASURED_MODEL: Final = "all-MiniLM-L6-v2"
"""The model of the published measurements, preferred if several are installed."""


def choose(
    name: str,
    *,
    models: Sequence[Path],
    onnx_model: str | None = None,
    threads: int = 1,
    hash_instead: bool = False,
) -> Embedders:
    """Return the local embedders for this setting. Raise MissingExtra or EmbedderError if an
    embedder is unavailable.

    `models` are folders that contain model folders. `onnx_model` is the name of such a model
    folder, or a path. `threads` is the number of cores that a model may use. A missing
    "transformer" is not an error: recall then uses words only, or the hash embedder if
    `hash_instead` is true, as OpenClaw does.
    """
    makers: dict[str, Callable[[], Embedder]] = {
        "onnx": lambda: _onnx(models, onnx_model, threads),
        "static": StaticEmbedder,
        "hash": HashEmbedder,
    }
    if name == "none":
        return Embedders(said="none: recall searches by words only")
    if name == "transformer":
        try:
            return _fill_embedders([makers["onnx"]()])
        except (MissingExtra, EmbedderError) as error:
            by = "with hash vectors" if hash_instead else "by words only"
            lacking = f"transformer unavailable: {error}"
            instead = (HashEmbedder(),) if hash_instead else ()
            return Embedders(used=instead, said=f"recall searches {by}; {lacking}", lacking=lacking)
    if name != "auto":
        return _fill_embedders([makers[part]() for part in name.split("+")])
    used: list[Embedder] = []
    problems: list[str] = []
    for kind in ("onnx", "static"):
        try:
            used.append(makers[kind]())
        except (MissingExtra, EmbedderError) as error:
            problems.append(f"{kind} unavailable: {error}")
    return _fill_embedders(used, problems)


def _fill_embedders(embedders: Sequence[Embedder], lacking: Sequence[str] = ()) -> Embedders:
    names = " and ".join(embedder.name for embedder in embedders) or "recall searches by words only"
    return Embedders(used=tuple(embedders), said="; ".join((names, *lacking)))


def _onnx(models: Sequence[Path], onnx_model: str | None, threads: int) -> OnnxEmbedder:
    if not are_packages_installed():
        raise MissingExtra(feature=FEATURE, extra=EXTRA)
    return OnnxEmbedder(_model_folder(models, onnx_model), threads=threads)


def _model_folder(models: Sequence[Path], onnx_model: str | None) -> Path:
    folders = find_models(models)
    if onnx_model is not None:
        named_folders = [folder for folder in folders if folder.name == onnx_model]
        path = named_folders[0] if named_folders else Path(onnx_model).expanduser()
        if not path.is_dir():
            names = ", ".join(sorted({folder.name for folder in folders}))
            listed_names = f" ({names})" if names else ""
            raise EmbedderError(
                f"there is no ONNX model {onnx_model!r}: name a folder with model.onnx and "
                f"tokenizer.json{listed_names}, or run `recollect models download "
                f"{OFFERED_MODEL}`"
            )
        return path
    if not folders:
        raise EmbedderError(
            f"no ONNX model is installed: run `recollect models download {OFFERED_MODEL}`"
        )
    return next(
        (folder for folder in folders if folder.name.startswith(MEASURED_MODEL)), folders[0]
    )
