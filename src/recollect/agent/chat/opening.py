"""Opens a chat: chooses the model, the session, and the rule for commands.

The model is the first that exists: the one that the user named, the one in the settings, one whose
key is in the environment, or a llama.cpp server on this machine. A provider's key is never sent to
a server that the user named."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from recollect.errors import SettingsError, TranscriptLocked
from recollect.system.config import load_settings
from recollect.system.projects import chat_space

if TYPE_CHECKING:
    from recollect.agent.loop import Agent
    from recollect.agent.tools.confine import ShellRule
    from recollect.hosts.tools.handler import ForgetRequest
    from recollect.system.config import Settings
    from recollect.system.config.settings import ProviderFormat

BashChoice: TypeAlias = Literal["auto", "ask", "allow", "off"]

PROBE_SECONDS: Final = 0.2
"""Time limit for finding a server on this machine."""
LOCAL_URL: Final = "http://127.0.0.1:8080/v1"
"""The default address of llama.cpp's server."""


class KnownProvider(NamedTuple):
    """A provider that the chat can use as soon as its key is in the environment."""

    title: str
    wire: ProviderFormat
    variable: str
    model: str


PROVIDERS: Final[Mapping[str, KnownProvider]] = {
    "anthropic": KnownProvider("Anthropic", "anthropic", "ANTHROPIC_API_KEY", "claude-sonnet-5-5"),
    "openai": KnownProvider("OpenAI", "openai-responses", "OPENAI_API_KEY", "gpt-5"),
}
"""Known providers, by the name that a user passes as `--provider`."""
NO_MODEL: Final = (
    "there is no model to talk to: set ANTHROPIC_API_KEY or OPENAI_API_KEY, start llama-server on "
    "this machine (port 8080), give --provider URL, or set models.provider and models.main in "
    "recollect.toml"
)
OPEN_ELSEWHERE: Final = (
    "this session is open in another chat: continue there, or start another one with "
    "--session NAME or --new"
)


QuestionKind: TypeAlias = Literal["run", "forget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonQuestion:
    """A question about something that only a person may allow."""

    kind: QuestionKind
    text: str = field(repr=False)
    """The command to run, or a list of everything to forget."""


Ask: TypeAlias = Callable[[PersonQuestion], Awaitable[bool]]
"""Asks a person, and returns True if the person allows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOrder:
    """The options of a chat."""

    workspace: Path
    settings: Settings
    key: str = "main"
    space: str | None = None
    store: str | None = None
    starts_new: bool = False
    """True to start a new session for this key."""
    resume: str | None = None
    """Id, id prefix or name of the session to continue instead of the key's newest one."""
    read_only: bool = False
    bash: BashChoice = "auto"
    network: bool = False

    @property
    def space_name(self) -> str:
        return self.space or chat_space(str(self.workspace))


@asynccontextmanager
async def open_chat_agent(order: ChatOrder, ask: Ask | None = None) -> AsyncIterator[Agent]:
    """Open the agent of a chat. `ask` asks the person for permission, if a person is present."""
    from recollect.adapters.session.files import SessionIndex
    from recollect.agent.opening import open_agent
    from recollect.hosts.inspect.sessions import find_session, sessions_of

    async def confirm_forget(forget_request: ForgetRequest) -> bool:
        return ask is not None and await ask(
            PersonQuestion(kind="forget", text=forget_request.whole())
        )

    def session_to_resume() -> str | None:
        if order.resume is None:
            return None
        return find_session(sessions_of(order.space_name), order.resume).session_id

    shell = await asyncio.to_thread(shell_rule, order, ask)
    if order.starts_new:
        index = SessionIndex.of_space(order.space_name)
        await asyncio.to_thread(index.start_transcript, order.key)
    session_id = await asyncio.to_thread(session_to_resume)
    try:
        async with open_agent(
            order.workspace,
            key=order.key,
            session_id=session_id,
            space=order.space,
            store=order.store,
            read_only=order.read_only,
            shell=shell,
            confirm_forget=None if ask is None else confirm_forget,
            settings=order.settings,
        ) as agent:
            yield agent
    except TranscriptLocked:
        raise TranscriptLocked(OPEN_ELSEWHERE) from None


def shell_rule(order: ChatOrder, ask: Ask | None) -> ShellRule:
    """Choose the rule for commands: confine them if this machine can; otherwise, ask a person."""
    from recollect.agent.tools.confine import ShellRule, bubblewrap_works

    if order.bash == "allow":
        return ShellRule(mode="free")
    if order.bash == "off":
        return ShellRule(mode="off")
    if order.bash == "auto" and bubblewrap_works(order.workspace):
        return ShellRule(mode="confined", network=order.network)
    if ask is None:
        return ShellRule(mode="asked")

    async def confirm(command: str) -> bool:
        return await ask(PersonQuestion(kind="run", text=command))

    return ShellRule(mode="asked", confirm=confirm)


def choose_settings(
    *,
    provider: str | None,
    model: str | None,
    window_tokens: int | None,
    folder: Path = Path(),
) -> Settings:
    """Return settings that name a model. Raise SettingsError if there is no model. The project's
    settings are those of `folder`, or of the current folder."""
    limits = {} if window_tokens is None else {"window_tokens": window_tokens}
    settings = load_settings(arguments=limits, folder=folder).settings
    model_arguments = _choose_model(settings, provider, model)
    return load_settings(arguments={**limits, **model_arguments}, folder=folder).settings


def _choose_model(settings: Settings, provider: str | None, model: str | None) -> dict[str, Any]:
    if provider is not None and provider not in PROVIDERS:
        return _server(provider, model)
    models = settings.models
    if provider is None and models.provider is not None:
        if model or models.main:
            return {"models.main": model or models.main}
        if models.base_url is not None:
            return {"models.main": find_served_model(models.base_url, seconds=2.0) or "default"}
        provider_name = "anthropic" if models.provider == "anthropic" else "openai"
        return {"models.main": PROVIDERS[provider_name].model}
    if provider is None:
        names_with_key = [
            name
            for name, known_provider in PROVIDERS.items()
            if os.environ.get(known_provider.variable)
        ]
        if not names_with_key:
            return _local(model)
        provider = names_with_key[0]
    chosen_provider = PROVIDERS[provider]
    is_same_server = models.provider == chosen_provider.wire and models.base_url is None
    model_name = model or (models.main if is_same_server else None) or chosen_provider.model
    return _model_arguments(chosen_provider.wire, model_name, None)


def _model_arguments(wire: ProviderFormat, model: str, url: str | None) -> dict[str, Any]:
    return {"models.provider": wire, "models.main": model, "models.base_url": url}


def _server(url: str, model: str | None) -> dict[str, Any]:
    if urlsplit(url).scheme not in ("http", "https"):
        names = ", ".join(PROVIDERS)
        raise SettingsError(f"--provider {url!r}: give one of {names}, or a server's http:// URL")
    model_name = model or find_served_model(url, seconds=2.0)
    if model_name is None:
        raise SettingsError(
            f"--provider {url}: the server does not list its models; check that it runs, or pass "
            "--model NAME"
        )
    return _model_arguments("openai-chat", model_name, url)


def _local(model: str | None) -> dict[str, Any]:
    served_model = find_served_model(LOCAL_URL, seconds=PROBE_SECONDS)
    if served_model is None:
        raise SettingsError(NO_MODEL)
    return _model_arguments("openai-chat", model or served_model, LOCAL_URL)


def find_served_model(url: str, *, seconds: float) -> str | None:
    parts = urlsplit(url)
    path = parts.path.rstrip("/") or "/v1"
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        try:
            connection.request("GET", f"{path}/models")
            reply = connection.getresponse()
            model_list = json.loads(reply.read(1 << 20)) if reply.status == 200 else None
        finally:
            connection.close()
        model_name = model_list["data"][0]["id"] if model_list else None
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return None
    return model_name if isinstance(model_name, str) and model_name else None
