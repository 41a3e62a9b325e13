"""A provider's key, and a request to a provider's own API, reach no other provider's server."""

import itertools
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.harness.gateway import PATHS, ask, body_of, gateway
from tests.harness.model_server import ModelServer

from recollect.core.values.model import Usage
from recollect.hosts.gateway.upstream import Upstreams
from recollect.system.config import load_settings
from recollect.testing.scripted_model import Says

RANDOM = "Zk3pQ9vXw7Rt5Ym2Hs8Lc4Nb6Jd1Fg0W"
KEYS = {
    "anthropic": [f"sk-ant-api03-{RANDOM}", f"sk-ant-oat01-{RANDOM}"],
    "openai": [
        f"sk-proj-{RANDOM}",
        f"sk-svcacct-{RANDOM}",
        f"sk-{RANDOM[:20]}T3BlbkFJ{RANDOM[:20]}",
        f"sk-my-service-{RANDOM[:20]}T3BlbkFJ{RANDOM[:20]}",
    ],
    "google": [f"AIza{RANDOM}abc", f"AQ.Ab8{RANDOM}"],
    "groq": [f"gsk_{RANDOM}"],
    "xai": [f"xai-{RANDOM}"],
    "openrouter": [f"sk-or-v1-{RANDOM}"],
    "perplexity": [f"pplx-{RANDOM}"],
    "huggingface": [f"hf_{RANDOM}"],
    "cerebras": [f"csk-{RANDOM}"],
    "github": [f"ghp_{RANDOM}"],
    "amazon": [f"ABSK{RANDOM}", f"bedrock-api-key-{RANDOM}"],
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
    "fal": f"8c5c2a4e-1f0d-4c8a-9b1e-0a1b2c3d4e5f:{RANDOM.lower()}",
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
        ({"authorization": f"Bearer  {key}"}, ""),
        ({}, key),
        ({}, f"{key}="),
        ({}, f"sent=7&{key}=1"),
        ({"user_agent": key}, ""),
        ({"referer": f"https://desk.example/?key={key}"}, ""),
        ({"x_request_id": key}, ""),
        ({"sec_websocket_protocol": f"realtime, insecure-key.{key}"}, ""),
        ({"accept_language": key}, ""),
        ({"traceparent": f"00-{key}"}, ""),
        ({"cookie": f"__cf_bm={key}"}, ""),
        ({"cookie": key}, ""),
        ({"x_forwarded_for": f"192.0.2.7, {key}"}, ""),
    ]


def ways_of_any_key(key: str) -> list[tuple[dict[str, str], str]]:
    """Headers and query in which a server expects a key, as ten libraries write them."""
    return [
        ({"authorization": f"Bearer {key}"}, ""),
        ({"authorization": f"Bearer  {key}"}, ""),
        ({"authorization": f"Bearer\t{key}"}, ""),
        ({"authorization": key}, ""),
        ({"authorization": f"Key {key}"}, ""),
        ({"authorization": f'Token token="{key}"'}, ""),
        ({"authorization": f"Bearer sk-proj-{RANDOM}, Bearer {key}"}, ""),
        ({"authorization": "Basic " + b64encode(f"u:{key}".encode()).decode()}, ""),
        ({"x_api_key": key}, ""),
        ({"api_key": key}, ""),
        ({"ocp_apim_subscription_key": key}, ""),
        ({"x_auth_token": key}, ""),
        ({"x_portkey_api_key": key}, ""),
        ({"apikey": key}, ""),
        ({"cookie": f"theme=dark; api_key={key}"}, ""),
        ({}, f"api_key={key}"),
        ({}, f"beta=true&access_token={key}"),
        ({}, f"key=Bearer%2520{key}"),
    ]


def token_of(issuer: str) -> str:
    """A JSON web token, as identity providers issue it."""
    parts = ({"alg": "RS256"}, {"sub": RANDOM, "iss": issuer, "aud": "api"})
    written = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join((*written, RANDOM))


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
    monkeypatch: pytest.MonkeyPatch, *, own: bool = True, is_local: bool = False, **more: Any
) -> Iterator[Providers]:
    """`own`: the servers are the providers' own; else they are a proxy's, or with `is_local` one
    of this machine, such as llama.cpp."""
    if not is_local:
        monkeypatch.setattr("recollect.hosts.gateway.upstream.is_this_machine", lambda _: False)
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
        for number, (name, path) in enumerate(
            itertools.product(WITHOUT_PREFIX, (*PATHS.values(), *UNKNOWN))
        ):
            ways = ways_of_any_key(WITHOUT_PREFIX[name])
            headers, query = ways[number % len(ways)]
            assert lab.send(path, headers, query)[1] == "", (name, path, headers, query)
        for number, way in enumerate(ways_of_any_key(WITHOUT_PREFIX["mistral"])):
            path = list(PATHS.values())[number % len(PATHS)]
            assert lab.send(path, *way)[1] == "", (path, way)


def test_a_key_in_the_path_reaches_no_other_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    with providers(monkeypatch) as lab:
        for name, path in itertools.product(KEYS, ("/k/KEY/v1/models", "/v1/KEY", "/v1/a%2FKEY/b")):
            receiver = lab.send(path.replace("KEY", KEYS[name][0]), {})[1]
            assert receiver == (name if name in ("anthropic", "openai") else ""), path


@pytest.mark.parametrize("is_local", [True, False])
def test_a_server_of_ones_own_gets_keys_of_any_form(
    is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp, LiteLLM and corporate proxies choose keys of their own."""
    keys = [*WITHOUT_PREFIX.values(), "sk-1234", "none", "sk-litellm-0123456789abcdef", "dummy"]
    keys += [token_of("https://login.microsoftonline.com/7/v2.0"), f"eyJhbGciOiJSUzI1NiJ9.{RANDOM}"]
    with providers(monkeypatch, own=False, is_local=is_local) as lab:
        for key, (wire, path) in itertools.product(keys, PATHS.items()):
            family = "anthropic" if wire == "anthropic" else "openai"
            for way in ({"authorization": f"Bearer {key}"}, {"x_api_key": key}, {"api_key": key}):
                assert lab.send(path, way) == (200, family)
        for key, path in itertools.product(keys, UNKNOWN):
            assert lab.send(path, {"authorization": f"Bearer {key}"})[1] == "openai"


def test_a_server_of_this_machine_gets_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with providers(monkeypatch, own=False, is_local=True) as lab:
        for key in itertools.chain.from_iterable(KEYS.values()):
            for wire, path in PATHS.items():
                family = "anthropic" if wire == "anthropic" else "openai"
                assert lab.send(path, {"authorization": f"Bearer {key}"}) == (200, family)


def test_keys_that_providers_issue_are_not_taken_for_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    login = token_of("https://auth.openai.com")
    with providers(monkeypatch) as lab:
        for key in ("sk-dummy", "sess-" + RANDOM, login, "ek_" + RANDOM, "at-" + RANDOM):
            account = {"chatgpt_account_id": "8c5c2a4e-1f0d-4c8a-9b1e-0a1b2c3d4e5f"}
            way = {"authorization": f"Bearer {key}", **account}
            assert lab.send(PATHS["openai-responses"], way)[1] == "openai"
            if key != "sk-dummy":
                assert lab.send(PATHS["anthropic"], way)[1] == ""
        signed = {"authorization": f"AgentAssertion {token_of('')[:90]}"}  # Codex, per request
        assert lab.send(PATHS["openai-responses"], signed)[1] == "openai"
        for key in ("sk-ant-dummy", f"sk-ant-si-{login}"):
            assert lab.send(PATHS["anthropic"], {"authorization": f"Bearer {key}"})[1]
        told = {"user_agent": "xai-sdk-python-client/1.0.0", "x_title": "hf_hub, AIza and gsk_"}
        assert lab.send(PATHS["anthropic"], {"x_api_key": "sk-ant-x", **told}) == (200, "anthropic")


@pytest.mark.parametrize(
    "issuer",
    [
        *("https://sts.windows.net/7/", "https://login.microsoftonline.com/7/v2.0"),
        *("https://accounts.google.com", "https://token.actions.githubusercontent.com"),
        *("https://openai.com.example.org/", "https://notopenai.com/", "", "joe"),
    ],
)
def test_a_token_of_another_issuer_reaches_neither_anthropic_nor_openai(
    issuer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with providers(monkeypatch) as lab:
        for path, way in itertools.product(PATHS.values(), ways_of_any_key(token_of(issuer))):
            assert lab.send(path, *way)[1] == "", way


USED_BY_NO_SERVER_AS_A_KEY = (
    {"openai_organization": f"org-{RANDOM}", "openai_project": f"proj_{RANDOM}"},
    {"idempotency_key": "stainless-node-retry-8c5c2a4e-1f0d-4c8a-9b1e-0a1b2c3d4e5f"},
    {"x_forwarded_user": "8c5c2a4e-1f0d-4c8a-9b1e-0a1b2c3d4e5f"},
    {"baggage": "sentry-public_key=0123456789abcdef0123456789abcdef,sentry-release=1"},
    {"cookie": f"__Secure-next-auth.session-token={RANDOM}; oai-client-auth={RANDOM}"},
    {"x_codex_turn_metadata": '{"installation_id":"bbd8bed1-006b-4a37-8285-19f565da6c2d"}'},
    {"x_claude_code_session_id": "8c5c2a4e-1f0d-4c8a-9b1e-0a1b2c3d4e5f"},
    {"x_user_id": "8c5c2a4e-1f0d-4c8a-9b1e-0a1b2c3d4e5f"},
    {"x_cache_key": RANDOM + RANDOM, "x_csrf_token": RANDOM},
    {"x_amzn_oidc_accesstoken": token_of("https://cognito.example/")},
    {"authorization": f"AWS4-HMAC-SHA256 Credential=AK/7/x, Signature={RANDOM * 2}"},
)


@pytest.mark.parametrize("way", USED_BY_NO_SERVER_AS_A_KEY)
def test_long_ids_are_not_taken_for_keys(
    way: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with providers(monkeypatch) as lab:
        for wire, path in PATHS.items():
            family = "anthropic" if wire == "anthropic" else "openai"
            assert lab.send(path, way, "page=MjAyNi0xMS0xOVQyMzoyMTowOFo") == (200, family)


HEX = "0123456789abcdef" * 2
CORPORATE = token_of("https://login.microsoftonline.com/7/v2.0")
PROXIES = (
    {"x_litellm_api_key": f"Bearer sk-{RANDOM}"},
    {"x_litellm_key": f"sk-litellm-{RANDOM}", "x_litellm_tags": "desk"},
    {"x_portkey_api_key": f"pk-{RANDOM}", "x_portkey_provider": "openai"},
    {"x_portkey_virtual_key": f"openai-{RANDOM}", "x_portkey_config": "pc-desk-7f3c"},
    {"helicone_auth": f"Bearer sk-helicone-{RANDOM}", "helicone_user_id": "joe@desk.example"},
    {"cf_aig_authorization": f"Bearer {RANDOM}", "cf_aig_metadata": '{"team":"desk"}'},
    {"cf_access_client_id": f"{HEX}.access", "cf_access_client_secret": HEX + HEX},
    {"http_referer": "https://desk.example", "x_openrouter_key": f"sk-or-v1-{RANDOM}"},
    {"ocp_apim_subscription_key": HEX, "ocp_apim_trace": "true"},
    {"api_key": HEX},
    {"x_ms_token_aad_access_token": CORPORATE, "x_ms_client_principal_id": RANDOM},
    {"x_bedrock_proxy_key": f"bedrock-api-key-{RANDOM}"},
    {"x_amzn_oidc_data": CORPORATE, "x_amzn_oidc_accesstoken": CORPORATE},
    {"apikey": RANDOM, "x_consumer_username": "desk", "x_consumer_id": RANDOM},
    {"x_tyk_authorization": RANDOM, "x_tyk_key": HEX},
    {"x_apigee_api_key": RANDOM + RANDOM, "x_apigee_developer": "joe"},
    {"x_gravitee_api_key": "8c5c2a4e-1f0d-4c8a-9b1e-0a1b2c3d4e5f"},
    {"x_corp_gateway_secret": RANDOM, "x_employee": "4021"},
    {"x_auth_token": CORPORATE, "x_forwarded_access_token": CORPORATE},
    {"x_vault_token": f"hvs.{RANDOM}", "x_goog_iap_jwt_assertion": CORPORATE},
)
"""What proxies before a gateway add, or expect from a client, next to the provider's own key."""
PROXY_KEYS = {
    "x_litellm_api_key",
    "x_litellm_key",
    "x_portkey_api_key",
    "x_portkey_virtual_key",
    "helicone_auth",
    "cf_aig_authorization",
    "cf_access_client_secret",
    "x_openrouter_key",
    "ocp_apim_subscription_key",
    "api_key",
    "x_ms_token_aad_access_token",
    "x_bedrock_proxy_key",
    "x_amzn_oidc_accesstoken",
    "apikey",
    "x_tyk_authorization",
    "x_tyk_key",
    "x_apigee_api_key",
    "x_gravitee_api_key",
    "x_corp_gateway_secret",
    "x_auth_token",
    "x_forwarded_access_token",
    "x_vault_token",
}
"""Those of these headers that open something, so no provider may get them."""


@pytest.mark.parametrize("proxy", PROXIES, ids=lambda proxy: next(iter(proxy)))
def test_a_proxys_own_key_neither_reaches_a_provider_nor_stops_the_request(
    proxy: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"anthropic": {"x_api_key": KEYS["anthropic"][0]}}
    own["openai"] = {"authorization": f"Bearer {KEYS['openai'][0]}"}
    with providers(monkeypatch) as lab:
        for wire, path in PATHS.items():
            family = "anthropic" if wire == "anthropic" else "openai"
            assert lab.send(path, proxy | own[family]) == (200, family)
            (name, key), *_ = own[family].items()
            received = lab.servers[family].asked[-1].headers
            assert received[name.replace("_", "-")] == key
            received_headers = {header.replace("-", "_") for header in received}
            for name in proxy:
                assert (name in received_headers) == (name not in PROXY_KEYS), name


AZURE_TOKEN = token_of("https://sts.windows.net/7/")
LEGITIMATE = (
    ("https://x7.us-east-1.aws.endpoints.huggingface.cloud/v1", KEYS["huggingface"][0]),
    ("https://router.huggingface.co/v1", KEYS["huggingface"][0]),
    ("https://desk-vllm.hf.space/v1", KEYS["huggingface"][0]),
    ("https://models.inference.ai.azure.com", KEYS["github"][0]),
    ("https://models.inference.ai.azure.com", WITHOUT_PREFIX["azure"]),
    ("https://models.github.ai/inference", KEYS["github"][0]),
    ("https://copilot-api.desk.ghe.com", KEYS["github"][0]),
    ("https://desk.openai.azure.us/openai/v1", AZURE_TOKEN),
    ("https://desk.openai.azure.us/openai/v1", WITHOUT_PREFIX["azure"]),
    ("https://desk.openai.azure.cn/openai/v1", WITHOUT_PREFIX["azure"]),
    ("https://desk.services.ai.azure.com/openai/v1", AZURE_TOKEN),
    ("https://desk.azure-api.net/openai/v1", WITHOUT_PREFIX["azure"]),
    ("https://bedrock-mantle.us-east-1.api.aws/v1", KEYS["amazon"][1]),
    ("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", KEYS["amazon"][0]),
    ("https://aiplatform.googleapis.com/v1/endpoints/openapi", "ya29.a0" + RANDOM),
    ("https://generativelanguage.googleapis.com/v1beta/openai", KEYS["google"][1]),
    ("https://api.mistral.ai/v1", WITHOUT_PREFIX["mistral"]),
    ("https://api.moonshot.ai/v1", WITHOUT_PREFIX["moonshot"]),
    ("https://api.deepseek.com", WITHOUT_PREFIX["deepseek"]),
    ("https://api.openai.com/v1", KEYS["openai"][3]),
    ("https://eu.api.openai.com/v1", f"sk-None-{RANDOM[:20]}T3BlbkFJ{RANDOM[:20]}"),
    ("https://chatgpt.com/backend-api/codex", token_of("https://auth.openai.com")),
    ("https://litellm.desk.example/v1", AZURE_TOKEN),
    *(
        (f"http://{host}:8000/v1", KEYS[name][0])
        for host in ("127.0.0.1", "127.8.8.8", "[::1]", "localhost", "vllm.localhost", "0.0.0.0")
        for name in ("anthropic", "huggingface", "groq")
    ),
    ("http://host.docker.internal:11434/v1", KEYS["openrouter"][0]),
)


def stranger(url: str, headers: dict[str, str], path: str = PATHS["openai-chat"]) -> str | None:
    settings = load_settings(arguments={"gateway.upstream.openai": url}).settings
    return Upstreams(settings.gateway).stranger("openai", list(headers.items()), "", path)


@pytest.mark.parametrize(("url", "key"), LEGITIMATE)
def test_servers_get_the_keys_that_they_issue(url: str, key: str) -> None:
    assert stranger(url, {"authorization": f"Bearer {key}"}) is None
    if key == WITHOUT_PREFIX["azure"]:
        assert stranger(url, {"api-key": key}) is None


@pytest.mark.parametrize(
    "url", ["https://desk.azure-api.net/gpt", "https://ai.desk.example", "https://desk.azure.com"]
)
def test_proxies_have_azures_paths_too(url: str) -> None:
    assert stranger(url, {"api-key": WITHOUT_PREFIX["azure"]}, OTHER_APIS[0].split("?")[0]) is None
    assert stranger(url, {"authorization": f"Bearer {KEYS['groq'][0]}"}) == "groq"


@pytest.mark.parametrize(
    "url",
    [
        *("https://127.0.0.1.example.org", "https://notlocalhost", "https://192.0.2.7"),
        *("https://api.openai.com.example.org", "https://hf.space.example", "http://10.0.0.7:8000"),
    ],
)
def test_a_server_elsewhere_is_neither_this_machine_nor_a_provider(url: str) -> None:
    assert stranger(url, {"authorization": f"Bearer {KEYS['huggingface'][0]}"}) == "huggingface"


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("way", [{"x_goog_api_key": "short"}, {"authorization": "Bearer ours"}, {}])
def test_apis_that_no_upstream_speaks_are_refused(
    own: bool, way: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with providers(monkeypatch, own=own) as lab:
        for path in (*GEMINI, *OTHER_APIS[not own :]):
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
