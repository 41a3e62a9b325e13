"""Settings into language models: who summarises, who flushes, who carries our own agent.

Must never import an HTTP client: a model connects when it is first asked. A model is asked only
where the settings name a provider: nothing is sent anywhere by default.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeAlias, get_args

from recollect.config import Settings
from recollect.config.settings import ProviderFormat
from recollect.errors import MissingExtra, ModelRefused, SettingsError
from recollect.ports import ChatModel, Model
from recollect.rules.budget import window_of
from recollect.values.model import Answer, Prompt


class Asked(Protocol):
    """The least that a model of one's own has to be."""

    async def ask(self, prompt: Prompt) -> Answer | str:
        """The answer to one prompt, or only its text."""
        ...


OwnModel: TypeAlias = Asked | Callable[[Prompt], Awaitable[Answer | str]]
"""A model of one's own, or only the async function that asks it."""
ModelRole: TypeAlias = Literal["main", "summary", "flush", "extraction"]

KEY_VARIABLES: dict[ProviderFormat, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
}


class OnlyAsks:
    """A model of which little but the asking is known; there is nothing to give back."""

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
        """The answer; a text alone is one."""
        answer = await self._ask(prompt)
        if isinstance(answer, Answer):
            return answer
        if isinstance(answer, str):
            return Answer(text=answer)
        raise ModelRefused(
            f"your model answered with a {type(answer).__name__}: return an Answer, or a text"
        )

    async def close(self) -> None:
        """Nothing of ours is open."""


def own_model(given: Any) -> Model:
    """A model of the caller's own: whole, or only something to ask; TypeError for the rest."""
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
    return OnlyAsks(
        ask,
        name=name if isinstance(name, str) else "",
        window_tokens=window if isinstance(window, int) and window > 0 else None,
    )


def _is_async(ask: Any) -> bool:
    called = getattr(ask, "__call__", None)  # noqa: B004 - an object may be called as a function is
    return inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(called)


def choose_model(settings: Settings, role: ModelRole) -> ChatModel | None:
    """The model of this role; None where the settings name no provider, or none for it.

    Summaries and flushes are asked of `models.main` where nobody else is named; facts never are:
    they are read beside the conversation, and nobody who only chose a model to talk to asked for
    such calls.

    SettingsError where they are not enough to ask it: told when a memory is opened, not when its
    window is full.
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
    if find_spec("httpx") is None:
        raise MissingExtra(feature=f"models.provider = {models.provider!r}", extra="remote")
    # What a user sets is how much to use of it: a reply to a larger request is no overflow.
    window = window_of(name, replace(settings, window_tokens=None))
    return _adapter(
        models.provider,
        name,
        key=_key(settings),
        base_url=models.base_url,
        deadline_seconds=models.deadline_seconds,
        window_tokens=None if window.source == "assumed" else window.tokens,
    )


def _key(settings: Settings) -> str | None:
    """The key; none goes to another server unless its variable was named."""
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
    name: str,
    *,
    key: str | None,
    base_url: str | None,
    deadline_seconds: float,
    window_tokens: int | None,
) -> ChatModel:
    from recollect.providers.anthropic import AnthropicModel
    from recollect.providers.openai_chat import OpenAIChatModel
    from recollect.providers.openai_responses import OpenAIResponsesModel

    adapters: dict[
        ProviderFormat, type[AnthropicModel | OpenAIChatModel | OpenAIResponsesModel]
    ] = {
        "anthropic": AnthropicModel,
        "openai-chat": OpenAIChatModel,
        "openai-responses": OpenAIResponsesModel,
    }
    return adapters[provider](
        model=name,
        key=key,
        base_url=base_url,
        deadline_seconds=deadline_seconds,
        window_tokens=window_tokens,
    )
