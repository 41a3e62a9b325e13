"""Finds what identifies a request's caller, and the providers whose keys a request has. A proxy may
put a credential, a person, an organization or a tenant into any header, cookie or query value, so
no list of names is complete."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeAlias
from urllib.parse import unquote

Headers: TypeAlias = Sequence[tuple[str, str]]
Places: TypeAlias = tuple[tuple[str, str], ...]

OWN_HEADERS: Final = "x-recollect-"
"""Headers with this prefix are meant for the gateway, which does not forward them."""
_CREDENTIAL: Final = re.compile(
    r"(?!.*(?:idempot|csrf|xsrf|websocket|cache|nonce))(?:.*[-_.:])?"
    r"(?:authorization|auth|api-?key|key|secret|password|credentials?|user|username|e?mail|account"
    r"|org|organi[sz]ation|project|tenant|team|workspace|customer|principal)(?:[-_.]?(?:id|name))?"
)
"""Names of values that a caller keeps. Tokens are not among them, because proxies renew them, nor
cookies. The exceptions are names such as `idempotency-key`, whose values belong to one request."""
_SIGNED: Final = re.compile(r"(?i)\S+ (?:.*[,\s])?(?:oauth_)?(?:signature|response|nonce|mac)=")
"""An `authorization` that signs one request, such as AWS's or Digest's."""
_TRANSPORT: Final = re.compile(
    # the connection, the content, and the program that sends
    r"(?:accept|access-control|content|if|sec|x-stainless|x-envoy)-.*|accept|age|date|dnt|version"
    r"|anthropic-(?:beta|version|dangerous.*)|cache-control|connection|expect|host|keep-alive"
    r"|(?:http-)?referer|openai-beta|origin|pragma|priority|range|te|trailer|transfer-encoding"
    # the way of the request through proxies, its number and its time
    r"|upgrade|user-agent|via|x-forwarded-(?:for|host|port|prefix|proto|scheme|server)|cf-ray"
    r"|(?:.*-)?(?:real|client|connecting)-?ip|forwarded:(?:for|by|proto|host)|b3|x-b3-.*"
    r"|trace(?:parent|state)|(?:.*[-_])?(?:trace|span|request|correlation)(?:[-_]?id)?"
    r"|x-cloud-trace-context|sentry-trace|baggage:sentry-.*|x-(?:request|queue)-start"
    r"|(?:.*-)?(?:retry|attempt)(?:-count|-after)?|.*-timeout|query:(?:beta|api-version|_)"
    # cookies of load balancers and of statistics
    r"|cookie:(?:__cf.*|_cfuvid|awsalb.*|arraffinity.*|_ga(?:_.*)?|_gid)"
)
"""Places that identify no caller. A place that is missing here and changes with each request still
tears no session whose client sends its whole history."""
_LISTS: Final = {"cookie": ";", "baggage": ",", "forwarded": ";", "query": "&"}
"""Headers that list values, and what separates them. The query counts as a header."""
MAX_LIST_CHARS: Final = 4_096
"""A longer list counts as one value, so that no request takes long."""


def identity_places(headers: Headers, query: str) -> tuple[Places, Places]:
    """Return the places of a request that may identify its caller, with their values: first the
    credentials, which a caller keeps, and then all others. Header names are in lower case."""
    credentials: list[tuple[str, str]] = []
    others: list[tuple[str, str]] = []
    for name, value in _named_values([*headers, ("query", query)]):
        is_kept = _CREDENTIAL.fullmatch(name) and not name.startswith("cookie:")
        if is_kept and not _SIGNED.match(value):
            credentials.append((name, value))
        elif value and not name.startswith(OWN_HEADERS) and not _TRANSPORT.fullmatch(name):
            others.append((name, value))
    return tuple(sorted(credentials)), tuple(sorted(others))


def _named_values(headers: Headers) -> Iterator[tuple[str, str]]:
    for name, value in headers:
        if name not in _LISTS or len(value) > MAX_LIST_CHARS:
            yield name, value
            continue
        for part in value.split(_LISTS[name]):
            key, _, content = part.strip().partition("=")
            yield f"{name}:{key.lower()}", content


_KEYS: Final = re.compile(
    r"(?<![^\W_])(?:(?P<anthropic>sk-ant-)|(?P<openrouter>sk-or-)|(?P<google>AIza[\w-]{16}|ya29\.)"
    r"|(?P<openai>sk-(?:proj|svcacct|admin)-|sk-\w{16,}T3BlbkFJ)|(?P<xai>xai-[^\W_]{16})"
    r"|(?P<groq>gsk_\w{16})|(?P<perplexity>pplx-\w{16})|(?P<huggingface>hf_\w{16})"
    r"|(?P<cerebras>csk-\w{16})|(?P<fireworks>fw_\w{16})|(?P<nvidia>nvapi-[\w-]{16})"
    r"|(?P<amazon>ABSK\w{16})|(?P<github>(?:gh[opsu]_|github_pat_)\w{16}))"
)
"""Beginnings of the keys that providers issue. A proxy's key can have any form."""
_APIS: Final = re.compile(
    r"(?P<google>^/(?:upload/)?v1(?:beta|alpha)|^/v1/projects/"
    r"|:(?:countTokens|\w*(?:[gG]enerateContent|[pP]redict|[eE]mbedContents?))$)"
    r"|(?P<azure>^/openai/deployments/)|(?P<amazon>^/model/[^/]+/(?:invoke|converse))"
)
"""Paths of providers' own APIs, which the gateway cannot read."""
PROVIDER_HOSTS: re.Pattern[str] = re.compile(
    r"(?:.*\.)?(?:(?P<anthropic>anthropic\.com)|(?P<openai>openai\.com|chatgpt\.com)|(?P<xai>x\.ai)"
    r"|(?P<google>googleapis\.com)|(?P<openrouter>openrouter\.ai)|(?P<groq>groq\.com)"
    r"|(?P<mistral>mistral\.ai)|(?P<deepseek>deepseek\.com)|(?P<perplexity>perplexity\.ai)"
    r"|(?P<huggingface>huggingface\.co)|(?P<cerebras>cerebras\.ai)|(?P<fireworks>fireworks\.ai)"
    r"|(?P<nvidia>nvidia\.com)|(?P<github>github\.ai|githubcopilot\.com)|(?P<azure>azure\.com)"
    r"|(?P<amazon>amazonaws\.com))"
)
"""Providers' domains. A server elsewhere is a proxy, or a model of the user's own."""
_OTHER_KEY: Final = re.compile(r"(?:\S+ )?(?!eyJ|sess-|ek_)[\w.~+/=-]{20,}")
"""A key that begins unlike those of Anthropic and OpenAI, and unlike their keys for one login."""
_KEY_HEADERS: Final = ("authorization", "x-api-key")
UNKNOWN_PROVIDER: Final = "another provider"
MAX_ENCODINGS: Final = 3
"""Number of percent-encodings that are undone. Programs that pass an address on encode it twice."""


def named_providers(headers: Headers, query: str, path: str = "") -> set[str]:
    """Return the providers to which a request's keys and path belong, as far as they show it."""
    credentials, others = identity_places(headers, query)
    texts = [value for _, value in (*credentials, *others)]
    matches = [match for text in texts for form in _decoded(text) for match in _KEYS.finditer(form)]
    found = {match.lastgroup or "" for match in (*matches, *_APIS.finditer(path))}
    for name, value in credentials:
        if name == "x-goog-api-key":
            found.add("google")
        elif name == "api-key" or (
            name in _KEY_HEADERS and _OTHER_KEY.fullmatch(value) and not _KEYS.search(value)
        ):
            found.add(UNKNOWN_PROVIDER)
    return found


def _decoded(text: str) -> Iterator[str]:
    """The text, and what it says if it is percent-encoded or a user and password in base64."""
    yield text
    for _ in range(MAX_ENCODINGS):
        if "%" not in text or (decoded := unquote(text)) == text:
            break
        yield (text := decoded)
    scheme, _, encoded = text.partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):
            yield b64decode(encoded + "==").decode()
