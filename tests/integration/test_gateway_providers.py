"""A provider's key, and a request to a provider's own API, reach no other provider's server."""

import itertools
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.harness.gateway import PATHS, ask, body_of, gateway
from tests.harness.model_server import ModelServer

from recollect.core.values.model import Usage
from recollect.testing.scripted_model import Says

RANDOM = "Zk3pQ9vXw7Rt5Ym2Hs8Lc4Nb6Jd1Fg0W"
KEYS = {
    "anthropic": [f"sk-ant-api03-{RANDOM}", f"sk-ant-oat01-{RANDOM}"],
    "openai": [
        f"sk-proj-{RANDOM}",
        f"sk-svcacct-{RANDOM}",
        f"sk-{RANDOM[:20]}T3BlbkFJ{RANDOM[:20]}",
    ],
    "google": [f"AIza{RANDOM}abc"],
    "groq": [f"gsk_{RANDOM}"],
    "xai": [f"xai-{RANDOM}"],
    "openrouter": [f"sk-or-v1-{RANDOM}"],
    "perplexity": [f"pplx-{RANDOM}"],
    "huggingface": [f"hf_{RANDOM}"],
    "cerebras": [f"csk-{RANDOM}"],
    "github": [f"ghp_{RANDOM}"],
}
WITHOUT_PREFIX = {
    "mistral": RANDOM,
    "azure": RANDOM.lower(),
    "cohere": RANDOM + RANDOM[:8],
    "deepseek": "sk-" + "0123456789abcdef" * 2,
    "moonshot": f"sk-{RANDOM}{RANDOM[:16]}",
    "zhipu": "0123456789abcdef" * 2 + f".{RANDOM[:16]}",
    "together": f"tgp_v1_{RANDOM}",
    "voyage": f"pa-{RANDOM}",
}
"""Keys that any server of one's own could also have."""
UNKNOWN = (
    *("/v1/models", "/v1/embeddings", "/v1/fim/completions", "/v1/files?limit=2", "/v1/rerank"),
    *("/api/v1/models", "/api/show", "/api/tags", "/openai/v1/models", "/v2/chat", "/"),
)
GEMINI = (
    "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
    "/v1beta/models/gemini-2.5-flash:generateContent",
    "/v1/models/gemini-2.5-flash:generateContent",
    "/v1beta/models",
    "/v1alpha/models/gemini-2.5-flash:countTokens",
    "/v1beta/openai/chat/completions",
    "/v1/projects/p/locations/eu/publishers/google/models/gemini:predict",
)
OTHER_APIS = (
    "/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
    "/model/anthropic.claude/invoke",
    "/model/anthropic.claude/converse-stream",
)


def headers_of(key: str) -> list[tuple[dict[str, str], str]]:
    """Headers and query that bring a key, as clients and proxies write it."""
    return [
        ({"authorization": f"Bearer {key}"}, ""),
        ({"x_api_key": key}, ""),
        ({"api_key": key}, ""),
        ({"x_goog_api_key": key}, ""),
        ({"x_some_proxy_auth": f"Bearer {key}"}, ""),
        ({}, f"key={key}"),
        ({}, f"auth=Bearer%20{key}"),
        ({}, f"u=http%253A//h/%253Fkey%253D{key}"),
        ({"cookie": f"a=%22{key}%22"}, ""),
        ({"x_proxy": f"key.{key}"}, ""),
        ({"authorization": "Basic " + b64encode(f"user:{key}".encode()).decode()}, ""),
    ]


@dataclass
class Providers:
    """A gateway between two real servers, which belong to Anthropic and to OpenAI or to nobody."""

    url: str
    servers: dict[str, ModelServer]

    def send(self, path: str, headers: dict[str, str], query: str = "") -> tuple[int, str]:
        """Send a request; the reply's status, and who received it."""
        counts = {name: len(server.asked) for name, server in self.servers.items()}
        target = path + ("&" if "?" in path else "?") * bool(query) + query
        wire = next((wire for wire, own in PATHS.items() if own == path), "openai-chat")
        reply = ask(self.url, target, body_of(wire, ["hello"]), **headers)
        got = [name for name, server in self.servers.items() if len(server.asked) > counts[name]]
        if not got:
            said = reply.json["error"]["message"]
            assert reply.status in (400, 404), said
            assert "gateway.upstream" in said, "the error says what to set"
        return reply.status, "".join(got)


def own_domains(monkeypatch: pytest.MonkeyPatch, **domains: str) -> None:
    hosts = re.compile("|".join(f"(?P<{name}>{domain})" for name, domain in domains.items()))
    monkeypatch.setattr("recollect.hosts.gateway.credentials.PROVIDER_HOSTS", hosts)


@contextmanager
def providers(
    monkeypatch: pytest.MonkeyPatch, *, own: bool = True, **more: Any
) -> Iterator[Providers]:
    """`own`: the servers are the providers' own; else they are somebody's, such as llama.cpp."""
    says = Says(text="Aye.", usage=Usage(input_tokens=9, output_tokens=1))
    if own:
        own_domains(monkeypatch, anthropic="127.0.0.1", openai="localhost")
    with ModelServer(lambda _: says) as one, ModelServer(lambda _: says) as other:
        upstreams = {
            "gateway.upstream.anthropic": one.url,
            "gateway.upstream.openai": other.url.replace("127.0.0.1", "localhost") + "/v1",
        }
        with gateway(one, **{**upstreams, **more}) as running:
            yield Providers(running.url, {"anthropic": one, "openai": other})


@pytest.mark.parametrize("own", [True, False])
def test_no_key_reaches_another_providers_server(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    strays, sent, arrived = [], 0, set()
    with providers(monkeypatch, own=own) as lab:
        keys = [(name, key) for name, several in KEYS.items() for key in several]
        paths = (*PATHS.values(), *UNKNOWN)
        for number, (name, key) in enumerate(keys):
            ways = headers_of(key)
            for path in paths:
                headers, query = ways[sent % len(ways)]
                sent += 1
                _, receiver = lab.send(path, headers, query)
                arrived |= {(name, receiver)}
                strays += [(name, path, headers, receiver)] if receiver not in ("", name) else []
            del number
    assert strays == []
    assert sent >= 60
    assert {("anthropic", "anthropic"), ("openai", "openai")} <= arrived


def test_keys_without_a_prefix_reach_no_provider_that_has_other_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with providers(monkeypatch) as lab:
        for (name, key), path in itertools.product(
            WITHOUT_PREFIX.items(), (*PATHS.values(), *UNKNOWN)
        ):
            way = {"api_key": key} if name == "azure" else {"authorization": f"Bearer {key}"}
            assert lab.send(path, way)[1] == "", (name, path)


def test_a_server_of_ones_own_gets_keys_of_any_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp, LiteLLM and corporate proxies choose keys of their own."""
    keys = [*WITHOUT_PREFIX.values(), "sk-1234", "none", "sk-litellm-0123456789abcdef", "dummy"]
    with providers(monkeypatch, own=False) as lab:
        for key, (wire, path) in itertools.product(keys, PATHS.items()):
            family = "anthropic" if wire == "anthropic" else "openai"
            for way in ({"authorization": f"Bearer {key}"}, {"x_api_key": key}, {"api_key": key}):
                assert lab.send(path, way) == (200, family)
        for key, path in itertools.product(keys, UNKNOWN):
            assert lab.send(path, {"authorization": f"Bearer {key}"})[1] == "openai"


def test_keys_that_providers_issue_are_not_taken_for_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = f"eyJhbGciOiJSUzI1NiJ9.{RANDOM}.{RANDOM}"
    with providers(monkeypatch) as lab:
        for key in ("sk-dummy", "sess-" + RANDOM, token, "ek_" + RANDOM):
            assert lab.send(PATHS["openai-responses"], {"authorization": f"Bearer {key}"})[1]
        for key in ("sk-ant-dummy", token):
            assert lab.send(PATHS["anthropic"], {"authorization": f"Bearer {key}"})[1]
        told = {"user_agent": "xai-sdk-python-client/1.0.0", "x_title": "hf_hub, AIza and gsk_"}
        assert lab.send(PATHS["anthropic"], {"x_api_key": "sk-ant-x", **told}) == (200, "anthropic")


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("way", [{"x_goog_api_key": "short"}, {"authorization": "Bearer ours"}, {}])
def test_apis_that_no_upstream_speaks_are_refused(
    own: bool, way: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with providers(monkeypatch, own=own) as lab:
        for path in (*GEMINI, *OTHER_APIS):
            assert lab.send(path, way)[1] == "", path


def test_an_upstream_of_a_provider_gets_that_providers_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = PATHS["openai-chat"]
    with providers(monkeypatch, own=False) as lab:
        for name, keys in KEYS.items():
            own_domains(monkeypatch, **{name: "localhost"})
            assert lab.send(path, {"authorization": f"Bearer {keys[0]}"}) == (200, "openai")
            for other in {"openai", "groq"} - {name}:
                stranger = {"authorization": f"Bearer {KEYS[other][0]}"}
                assert lab.send(path, stranger)[1] == "", "an OpenAI key is no key of this provider"


def test_a_server_of_ones_own_gets_every_key_if_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    any_key = {"gateway.upstream.any_key": True}
    with providers(monkeypatch, own=False, **any_key) as lab:
        way = {"authorization": f"Bearer {KEYS['groq'][0]}"}
        assert lab.send(PATHS["openai-chat"], way) == (200, "openai")
        assert lab.send(PATHS["anthropic"], way) == (200, "anthropic")
        assert lab.send(GEMINI[0], {"x_goog_api_key": KEYS["google"][0]})[1] == "openai"
    with providers(monkeypatch, **any_key) as lab:  # never another provider
        assert lab.send(PATHS["openai-chat"], way)[1] == ""


CLAUDE_PATHS = (
    *("/api/hello", "/api/event_logging/batch", "/api/claude_code/settings", "/api/oauth/profile"),
    *("/api/claude_cli/bootstrap", "/api/organization/claude_code_first_token_date"),
)


def test_only_claude_codes_own_paths_under_api_go_to_anthropic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with providers(monkeypatch) as lab:
        for path in CLAUDE_PATHS:
            for way in ({}, {"authorization": f"Bearer {KEYS['anthropic'][1]}"}):
                assert lab.send(path, way)[1] == "anthropic"
            assert (
                lab.send(path, {"authorization": f"Bearer {KEYS['openai'][0]}"})[1] != "anthropic"
            )
        claude = {"user_agent": "claude-cli/2.1.325 (external, cli)"}
        assert lab.send("/api/new_in_this_version", claude)[1] == "anthropic"
        for path in ("/api/v1/models", "/api/show", "/api/tags", "/api/chat", "/api/generate"):
            assert lab.send(path, {"authorization": "Bearer ours"})[1] == "openai"


@pytest.mark.parametrize("own", [True, False])
def test_a_request_falls_back_to_no_provider_that_its_key_is_not_for(
    own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    without: dict[str, Any] = {"gateway.upstream.anthropic": None}
    with providers(monkeypatch, own=own, **without) as lab:
        for headers in ({"x_api_key": "whose"}, {"anthropic_version": "2023-06-01"}):
            assert lab.send("/v1/models", headers)[1] == ("" if own else "openai")
