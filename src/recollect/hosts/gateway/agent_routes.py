"""Reads which provider an agent will use, from its configuration and its arguments. `wrap`
redirects this provider to the gateway, which sends the requests to the provider's own URL."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recollect.errors import RecollectError
from recollect.hosts.gateway.upstream import Family
from recollect.system.places import claude_code_folder, codex_folder, pi_folder

FAMILIES: Final[tuple[Family, ...]] = ("anthropic", "openai")
CHATGPT: Final = "https://chatgpt.com/backend-api/codex"
"""Codex's provider if the user signed in with ChatGPT."""
_PI_FAMILIES: Final[Mapping[str, Family]] = {
    "anthropic-messages": "anthropic",
    "openai-completions": "openai",
    "openai-responses": "openai",
}
_OPENCODE_FAMILIES: Final[Mapping[str, Family]] = {
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/openai": "openai",
    "@ai-sdk/openai-compatible": "openai",
}


@dataclass(frozen=True, slots=True)
class Route:
    """A provider whose requests pass through the gateway."""

    provider: str
    url: str = ""
    """The provider's own URL; "" for the usual one."""


@dataclass(slots=True)
class Routes:
    """The providers of an agent."""

    redirected: dict[Family, Route] = field(default_factory=dict)
    """One provider per family, because the gateway has one upstream per family."""
    direct: list[str] = field(default_factory=list)
    """Sentences about providers in use whose requests cannot pass through the gateway."""


def _cannot_redirect(agent: str, provider: str) -> str:
    return (
        f"{agent} uses its provider {provider}, whose address Recollect cannot change: its "
        "requests do not pass through Recollect"
    )


def claude_routes(_arguments: Sequence[str] = (), _named: Collection[Family] = ()) -> Routes:
    """Read the provider of Claude Code."""
    settings = json_object(_text_of(claude_code_folder() / "settings.json")).get("env") or {}
    return Routes({"anthropic": Route("anthropic", settings.get("ANTHROPIC_BASE_URL") or "")})


def codex_routes(arguments: Sequence[str] = (), _named: Collection[Family] = ()) -> Routes:
    """Read the provider of Codex: one of its own, an OpenAI key, or an account of ChatGPT."""
    try:
        config = tomllib.loads(_text_of(codex_folder() / "config.toml"))
    except tomllib.TOMLDecodeError:
        raise RecollectError("Codex's config.toml is not valid TOML: fix it first") from None
    overrides = dict(pair.split("=", 1) for pair in _options(arguments, "-c", "--config"))
    profile = next(_options(arguments, "-p", "--profile"), "") or config.get("profile", "")
    profile_settings = _object(_object(config.get("profiles")).get(profile))
    provider_name = str(
        overrides.get("model_provider", "").strip("'\" ")
        or profile_settings.get("model_provider")
        or config.get("model_provider", "openai")
    )
    if "--oss" in arguments:
        provider_name = "oss"
    if provider_name != "openai":
        url = _object(_object(config.get("model_providers")).get(provider_name)).get("base_url")
        if url and re.fullmatch(r"[\w-]+", provider_name):  # other names cannot be in an argument
            return Routes({"openai": Route(provider_name, str(url))})
        return Routes(direct=[_cannot_redirect("Codex", provider_name)])
    url = config.get("openai_base_url")
    signed_in = json_object(_text_of(codex_folder() / "auth.json"))
    if not url and signed_in.get("tokens") and not signed_in.get("OPENAI_API_KEY"):
        url = CHATGPT
    return Routes({"openai": Route("openai", str(url or ""))})


def pi_routes(arguments: Sequence[str] = (), _named: Collection[Family] = ()) -> Routes:
    """Read the providers of pi: Anthropic and OpenAI, or the one of its own that is in use."""
    providers = _object(json_object(_text_of(pi_folder() / "models.json")).get("providers"))
    urls = {name: str(_object(providers.get(name)).get("baseUrl") or "") for name in FAMILIES}
    routes = Routes({family: Route(family, urls[family]) for family in FAMILIES})
    settings = json_object(_text_of(pi_folder() / "settings.json"))
    model = next(_options(arguments, "--model"), "")
    provider_name = next(_options(arguments, "--provider"), "") or model.partition("/")[0] * (
        "/" in model
    )
    provider_name = provider_name or str(settings.get("defaultProvider") or "")
    if not provider_name or provider_name in FAMILIES:
        return routes
    provider = _object(providers.get(provider_name))
    models = [_object(model) for model in provider.get("models") or []]
    apis = {str(definition["api"]) for definition in (provider, *models) if definition.get("api")}
    family = _PI_FAMILIES.get(apis.pop()) if len(apis) == 1 else None
    if family is None or not provider.get("baseUrl"):
        routes.direct.append(_cannot_redirect("pi", provider_name))
    else:
        routes.redirected[family] = Route(provider_name, str(provider["baseUrl"]))
    return routes


def opencode_routes(arguments: Sequence[str] = (), named: Collection[Family] = ()) -> Routes:
    """Read the providers of opencode. An address in the project's file is not used, because the
    project's author could send the user's key there: that provider is not redirected, unless the
    user named an upstream of its family (`named`)."""
    own_config = _opencode_config(_own_opencode_files())
    project = _opencode_config(_project_files())
    model = next(_options(arguments, "-m", "--model"), "") or project.get("model")
    chosen_provider = str(model or own_config.get("model") or "").partition("/")[0]
    routes = Routes({family: Route(family) for family in FAMILIES})
    for provider in dict.fromkeys((*FAMILIES, *([chosen_provider] if chosen_provider else []))):
        provider_config = _object(_object(own_config.get("provider")).get(provider))
        of_project = _object(_object(project.get("provider")).get(provider))
        family = _opencode_family(provider, {**provider_config, **of_project})
        url, project_url = _base_url(provider_config), _base_url(of_project)
        if project_url and project_url != url and family not in named:
            routes.direct.append(
                f"the opencode.json of this project sends requests of {provider} to {project_url}: "
                "they do not pass through Recollect. If you trust this address, set it as "
                f"gateway.upstream.{family or 'openai'} in your own settings"
            )
            if family is not None and routes.redirected[family].provider == provider:
                del routes.redirected[family]
        elif family is None or not (url or provider in FAMILIES or family in named):
            routes.direct.append(_cannot_redirect("opencode", provider))
        else:
            routes.redirected[family] = Route(provider, url)
    return routes


def _opencode_family(provider: str, settings: Mapping[str, Any]) -> Family | None:
    if provider == "anthropic" or provider == "openai":
        return "anthropic" if provider == "anthropic" else "openai"
    return _OPENCODE_FAMILIES.get(str(settings.get("npm")))


def _base_url(provider: Mapping[str, Any]) -> str:
    url = str(_object(provider.get("options")).get("baseURL") or "")
    return re.sub(r"\{env:(\w+)\}", lambda match: os.environ.get(match[1], ""), url)


def _own_opencode_files() -> Iterator[str]:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
    for name in ("config.json", "opencode.json", "opencode.jsonc"):
        yield _text_of(folder / name)
    if file := os.environ.get("OPENCODE_CONFIG"):
        yield _text_of(Path(file))
    yield os.environ.get("OPENCODE_CONFIG_CONTENT", "")


def _project_files() -> Iterator[str]:
    current_folder = Path.cwd()
    folders = [current_folder, *current_folder.parents]
    top = next((i for i, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    for folder in reversed(folders[: top + 1]):
        for name in ("opencode.json", "opencode.jsonc"):
            yield _text_of(folder / name)
            yield _text_of(folder / ".opencode" / name)


def _opencode_config(texts: Iterator[str]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for text in texts:
        merged = merge_objects(merged, json_object(text))
    return merged


def merge_objects(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Merge JSON objects, also inner ones. Values of the second one win."""
    merged = dict(first)
    for key, value in second.items():
        are_objects = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge_objects(merged[key], value) if are_objects else value
    return merged


def _options(arguments: Sequence[str], *names: str) -> Iterator[str]:
    """Yield the values of an option, the last one first."""
    for index in range(len(arguments) - 1, -1, -1):
        name, equals, value = arguments[index].partition("=")
        if equals and name in names:
            yield value
        elif arguments[index] in names and index + 1 < len(arguments):
            yield arguments[index + 1]


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def json_object(text: str) -> dict[str, Any]:
    """Parse an agent's configuration. Raise RecollectError unless it is empty or an object."""
    if not text.strip():
        return {}
    value = read_configuration(text)
    if not isinstance(value, dict):
        raise RecollectError("the agent's configuration must be a JSON object: fix it first")
    return value


def read_configuration(text: str) -> Any:
    """Parse JSON with comments and trailing commas; return None if it is invalid."""
    try:
        return json.loads(text)
    except ValueError:
        import json5  # this import is slow, and rarely needed

    try:
        return json5.loads(text)
    except ValueError:
        return None
