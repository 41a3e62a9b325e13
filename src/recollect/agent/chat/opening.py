"""What a chat is opened with: which model is asked, which session goes on, how commands are run.

Nothing is sent anywhere to find a model but one question to this machine: what was named counts,
then the settings, then a key in the environment, then a server of llama.cpp that answers here.
Always holds: who names a server sends it no provider's key; what is chosen can be told in a line.
"""

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

if TYPE_CHECKING:
    from recollect.agent.loop import Agent
    from recollect.agent.tools.confine import ShellRule
    from recollect.hosts.tools.handler import ForgetRequest
    from recollect.system.config import Settings
    from recollect.system.config.settings import ProviderFormat

BashChoice: TypeAlias = Literal["auto", "ask", "allow", "off"]

PROBE_SECONDS: Final = 0.2
"""How long a server on this machine has to answer; one that is there does so in milliseconds."""
LOCAL_URL: Final = "http://127.0.0.1:8080/v1"
"""Where llama.cpp's server listens unless it is told otherwise."""


class KnownProvider(NamedTuple):
    """Who can be asked where a key is all that is there."""

    title: str
    wire: ProviderFormat
    variable: str
    """Where its key is."""
    model: str
    """The one that is asked where none is named."""


PROVIDERS: Final[Mapping[str, KnownProvider]] = {
    "anthropic": KnownProvider("Anthropic", "anthropic", "ANTHROPIC_API_KEY", "claude-sonnet-4-5"),
    "openai": KnownProvider("OpenAI", "openai-responses", "OPENAI_API_KEY", "gpt-5"),
}
"""By the name that `--provider` takes; `recollect init` offers the same ones."""
NO_MODEL: Final = (
    "there is no model to talk to: set ANTHROPIC_API_KEY or OPENAI_API_KEY, start llama-server on "
    "this machine (port 8080), give --provider URL, or set models.provider and models.main in "
    "recollect.toml"
)
OPEN_ELSEWHERE: Final = (
    "this session is open in another chat: go on there, or begin another one beside it with "
    "--session NAME or --new"
)


QuestionKind: TypeAlias = Literal["run", "forget"]
"""A command that nothing confines; something that memory knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonQuestion:
    """What the model wants done and only the person who sits there may allow."""

    kind: QuestionKind
    text: str = field(repr=False)
    """The command, or all that would be forgotten, whole."""


Ask: TypeAlias = Callable[[PersonQuestion], Awaitable[bool]]
"""Asks the person; True allows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOrder:
    """A chat as it was asked for."""

    workspace: Path
    settings: Settings
    key: str = "main"
    space: str | None = None
    store: str | None = None
    new: bool = False
    """Begin a new session under this key."""
    resume: str | None = None
    """Go on with this session under the key instead: its id, a beginning of it, or its name."""
    model: str | None = None
    """The model that was named for this run: it goes before what was chosen in the session."""
    read_only: bool = False
    bash: BashChoice = "auto"
    network: bool = False

    @property
    def space_name(self) -> str:
        """The memory that the chat is in."""
        return self.space or str(self.workspace)


@asynccontextmanager
async def opened_agent(order: ChatOrder, ask: Ask | None = None) -> AsyncIterator[Agent]:
    """The agent of a chat; `ask` asks the person who sits there, where somebody does."""
    await asyncio.to_thread(_import_agent)  # half a second that an event loop must not lose
    from recollect.adapters.session.index import SessionIndex
    from recollect.agent.opening import open_agent

    shell = await asyncio.to_thread(shell_rule, order, ask)
    if order.new:
        index = SessionIndex.of_space(order.space_name)
        await asyncio.to_thread(index.begin_anew, order.key)
    resumed = await asyncio.to_thread(_resumed, order)
    try:
        async with open_agent(
            order.workspace,
            key=order.key,
            session_id=resumed,
            space=order.space,
            store=order.store,
            read_only=order.read_only,
            shell=shell,
            confirm_forget=None if ask is None else _forget_question(ask),
            settings=order.settings,
        ) as agent:
            if order.model is not None and order.model != agent.model_name:
                await agent.use_model(order.model)
            yield agent
    except TranscriptLocked:
        raise TranscriptLocked(OPEN_ELSEWHERE) from None


def _import_agent() -> None:
    import recollect.agent.opening  # noqa: F401


def _resumed(order: ChatOrder) -> str | None:
    """The id of the session that is to go on; None: the key's own."""
    from recollect.hosts.inspect.sessions import session_meant, sessions_of

    if order.resume is None:
        return None
    return session_meant(sessions_of(order.space_name), order.resume).session_id


def _forget_question(ask: Ask) -> Callable[[ForgetRequest], Awaitable[bool]]:
    async def confirm(wanted: ForgetRequest) -> bool:
        return await ask(PersonQuestion(kind="forget", text=wanted.whole()))

    return confirm


def shell_rule(order: ChatOrder, ask: Ask | None) -> ShellRule:
    """How the model's commands are run: confined where this machine can, else a person decides."""
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


# Which model


def chosen_settings(
    config: Path | None,
    *,
    provider: str | None,
    model: str | None,
    window_tokens: int | None,
    folder: Path = Path(),
) -> Settings:
    """The settings with a model to talk to; SettingsError where there is none. `folder` is whose
    recollect.toml counts where no file is named; where it has none, the current folder's."""
    limits = {} if window_tokens is None else {"window_tokens": window_tokens}
    settings = load_settings(arguments=limits, file=config, folder=folder).settings
    chosen = _chosen(settings, provider, model)
    return load_settings(arguments={**limits, **chosen}, file=config, folder=folder).settings


def _chosen(settings: Settings, provider: str | None, model: str | None) -> dict[str, Any]:
    """Which settings follow from what was named and from what is here."""
    if provider is not None and provider not in PROVIDERS:
        return _server(provider, model)
    models = settings.models
    if provider is None and models.provider is not None:
        if model or models.main:
            return {"models.main": model or models.main}
        if models.base_url is not None:
            return {"models.main": served_model(models.base_url, seconds=2.0) or "default"}
        whose = "anthropic" if models.provider == "anthropic" else "openai"
        return {"models.main": PROVIDERS[whose].model}
    if provider is None:
        held = [name for name, one in PROVIDERS.items() if os.environ.get(one.variable)]
        if not held:
            return _local(model)
        provider = held[0]
    asked = PROVIDERS[provider]
    same = models.provider == asked.wire and models.base_url is None
    named = model or (models.main if same else None) or asked.model
    return {"models.provider": asked.wire, "models.main": named, "models.base_url": None}


def _server(url: str, model: str | None) -> dict[str, Any]:
    if urlsplit(url).scheme not in ("http", "https"):
        names = ", ".join(PROVIDERS)
        raise SettingsError(f"--provider {url!r}: give one of {names}, or a server's http:// URL")
    named = model or served_model(url, seconds=2.0)
    if named is None:
        raise SettingsError(
            f"--provider {url}: it does not say which models it has; see that it runs, or give "
            "--model NAME"
        )
    return {"models.provider": "openai-chat", "models.base_url": url, "models.main": named}


def _local(model: str | None) -> dict[str, Any]:
    found = served_model(LOCAL_URL, seconds=PROBE_SECONDS)
    if found is None:
        raise SettingsError(NO_MODEL)
    named = model or found
    return {"models.provider": "openai-chat", "models.base_url": LOCAL_URL, "models.main": named}


def served_model(url: str, *, seconds: float) -> str | None:
    """The first model that a server lists; None where nobody answers so."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/") or "/v1"
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        try:
            connection.request("GET", f"{path}/models")
            reply = connection.getresponse()
            listed = json.loads(reply.read(1 << 20)) if reply.status == 200 else None
        finally:
            connection.close()
        named = listed["data"][0]["id"] if listed else None
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return None
    return named if isinstance(named, str) and named else None
