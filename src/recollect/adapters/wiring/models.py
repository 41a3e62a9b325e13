"""Builds language models and embedders from settings.

Imports no HTTP client or other heavy package: a model connects with its first prompt, an embedder
loads in a thread. Nothing is sent anywhere unless the settings name a provider.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

from recollect.adapters.embedders.choose import choose
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

    async def ask(self, prompt: Prompt) -> Answer | str:
        """Answer one prompt, with an `Answer` or only its text."""
        ...


OwnModel: TypeAlias = AnswersPrompts | Callable[[Prompt], Awaitable[Answer | str]]
"""A caller's own model, or only the async function that asks it."""
ModelRole: TypeAlias = Literal["main", "summary", "extraction"]

_LOADED: dict[str, Embedder] = {}
ONNX_THREADS = 2
"""Cores that a run of a model may use; a turn's question is one short text."""
KEY_VARIABLES: dict[ProviderFormat, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
}


class PlainModel:
    """A caller's model that can only be asked; it holds no resources."""

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
        """Answer a prompt; a plain text becomes an `Answer`."""
        answer = await self._ask(prompt)
        if isinstance(answer, Answer):
            return answer
        if isinstance(answer, str):
            return Answer(text=answer)
        raise ModelRefused(
            f"your model answered with a {type(answer).__name__}: return an Answer, or a text"
        )

    async def close(self) -> None:
        """Do nothing: no resource of ours is open."""


def own_model(given: Any) -> Model:
    """Adapt a caller's own model, whole or only a function to ask; TypeError for anything else."""
    ask = getattr(given, "ask", given)
    if isinstance(given, type) or not _is_async(ask):
        what = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise TypeError(
            "a model is an object with `async def ask(self, prompt)`, or an async function of the "
            f"prompt, and {what} is neither"
        )
    if all(hasattr(given, part) for part in ("ask", "name", "window_tokens", "close")):
        whole: Model = given
        return whole
    name, window = getattr(given, "name", ""), getattr(given, "window_tokens", None)
    return PlainModel(
        ask,
        name=name if isinstance(name, str) else "",
        window_tokens=window if isinstance(window, int) and window > 0 else None,
    )


def _is_async(ask: Any) -> bool:
    called = getattr(ask, "__call__", None)  # noqa: B004 - an object may be called as a function is
    return inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(called)


def choose_model(settings: Settings, role: ModelRole) -> ChatModel | None:
    """Return the model of this role; None if the settings name no provider, or no model for it.

    `models.main` also summarises if `models.summary` is not set, but never extracts facts: a user
    who only chose a model to talk to did not ask for such calls. Raises SettingsError when a memory
    is opened, not later when its window is full.
    """
    models = settings.models
    name = getattr(models, role) or (models.main if role != "extraction" else None)
    if models.provider is None:
        if name is not None:
            named = "main" if getattr(models, role) is None else role
            raise SettingsError(
                f"models.{named} names a model but models.provider does not say whose: set it to "
                f"one of {', '.join(KEY_VARIABLES)}"
            )
        return None
    if name is None:
        if all(getattr(models, other) is None for other in get_args(ModelRole)):
            raise SettingsError(
                f"models.provider is {models.provider!r}, but no model is named: set models.main, "
                "or models.summary for summaries alone"
            )
        return None
    if find_spec("httpx2") is None:
        raise MissingExtra(feature=f"models.provider = {models.provider!r}", extra="remote")
    # A user sets how much of the window to use: a reply to a larger request is no overflow.
    window = window_of(name, replace(settings, window_tokens=None))
    return _adapter(models.provider)(
        model=name,
        key=_key(settings),
        base_url=models.base_url,
        deadline_seconds=models.deadline_seconds,
        window_tokens=None if window.source == "assumed" else window.tokens,
    )


def _key(settings: Settings) -> str | None:
    """Read the key; another server gets one only if its variable was named."""
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
            f"models.provider is {models.provider!r}, and {usual} is not set: set it in the "
            "environment, name another variable as models.key_variable, or a server that needs no "
            "key as models.base_url"
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
    """The embedders of a memory."""

    used: tuple[Embedder, ...] = ()
    """Asked for every question."""
    said: str = ""
    """The choice and the reason."""
    lacking: str = ""
    """The requested embedder that is missing: every recall reports it."""


def choose_embedders(settings: Settings) -> Embedders:
    """Return the embedders of these settings; SettingsError if a model is missing, MissingExtra
    if a package is."""
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
    used = tuple(_LOADED.setdefault(one.name, one) for one in choice.embedders)
    return Embedders(used=used, said=choice.said, lacking=choice.lacking)


def _remote(settings: Settings) -> Embedder:
    from recollect.adapters.embedders.remote import RemoteEmbedder

    remote = settings.recall.remote
    if remote.provider is None:
        raise SettingsError(
            'recall.embedder is "remote", but recall.remote.provider names nobody: '
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
