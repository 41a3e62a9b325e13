"""Settings into language models: who summarises, who flushes, who carries our own agent.

Must never import an HTTP client: a model connects when it is first asked. A model is asked only
where the settings name a provider: nothing is sent anywhere by default.
"""

from __future__ import annotations

import os
from typing import Literal, TypeAlias

from recollect.config import Settings
from recollect.config.settings import ProviderFormat
from recollect.errors import SettingsError
from recollect.ports import ChatModel
from recollect.rules.budget import window_of

ModelRole: TypeAlias = Literal["main", "summary", "flush", "extraction"]

KEY_VARIABLES: dict[ProviderFormat, str] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
}


def choose_model(settings: Settings, role: ModelRole) -> ChatModel | None:
    """The model of this role; None where the settings name no provider, or none for it."""
    models = settings.models
    name = getattr(models, role) or models.main
    if models.provider is None:
        if name is not None:
            raise SettingsError(
                f"models.{role} names a model but models.provider does not say whose: set it to "
                f"one of {', '.join(KEY_VARIABLES)}"
            )
        return None
    if name is None:
        return None
    window = window_of(name, settings)
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
                f"models.key_variable names {models.key_variable}, which is not set"
            )
        return key
    if models.base_url is not None:
        return None
    return os.environ.get(KEY_VARIABLES[models.provider])


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
