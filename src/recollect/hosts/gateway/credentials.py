"""Finds what identifies a request's caller, and the providers whose keys a request has. A proxy may
put a credential, a person, an organization or a tenant into any header, cookie or query value, so
no list of names is complete."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeAlias
from urllib.parse import unquote

from recollect.system.loopback import host_of, ip_of, is_this_machine

Headers: TypeAlias = Sequence[tuple[str, str]]
Places: TypeAlias = tuple[tuple[str, str], ...]

OWN_HEADERS: Final = "x-recollect-"
"""Headers with this prefix are meant for the gateway, which does not forward them."""
_CREDENTIAL: Final = re.compile(
    r"(?!cookie:|.*(?:idempot|csrf|xsrf|websocket|cache|nonce))(?:.*[-_.:])?"
    r"(?:authorization|auth|api-?key|key|secret|password|credentials?|user|username|e?mail|account"
    r"|org|organi[sz]ation|project|tenant|team|workspace|customer|principal)(?:[-_.]?(?:id|name))?"
)
"""Names of values that a caller keeps. Tokens are not among them, because proxies renew them, nor
cookies. The exceptions are names such as `idempotency-key`, whose values belong to one request."""
_SIGNED: Final = re.compile(
    r"(?i)\S+\s(?:.*[,\s])?(?:oauth_)?(?:signature|response|nonce|mac)=|AgentAssertion\s"
)
"""An `authorization` that signs one request, such as AWS's or Digest's."""
_SIGNER: Final = re.compile(
    r"(?i)[,\s](?:credential|username|key_?id|access_?id|id|oauth_(?:consumer_key|token))="
    r'"?([^",/\s]+)'
)
"""The part of such a value that is the same in each request."""
_HOSTS: Final = frozenset(
    {"host", "x-forwarded-host", "forwarded:host", "origin", "referer", "http-referer"}
)
"""Places whose host may name a tenant. Their ports and paths identify no caller."""
_TRANSPORT_NAMES: Final = """
accept accept-charset accept-datetime accept-encoding accept-language
access-control-request-headers access-control-request-method age cache-control connection
content-digest content-disposition content-encoding content-language content-length
content-location content-md5 content-range content-type date digest dnt expect if-match
if-modified-since if-none-match if-range if-unmodified-since keep-alive pragma priority
range save-data sec-ch-ua sec-ch-ua-arch sec-ch-ua-bitness sec-ch-ua-full-version
sec-ch-ua-full-version-list sec-ch-ua-mobile sec-ch-ua-model sec-ch-ua-platform
sec-ch-ua-platform-version sec-fetch-dest sec-fetch-mode sec-fetch-site sec-fetch-user
sec-gpc sec-purpose sec-websocket-extensions sec-websocket-key sec-websocket-protocol
sec-websocket-version te trailer transfer-encoding upgrade upgrade-insecure-requests
user-agent version anthropic-beta anthropic-version
anthropic-dangerous-direct-browser-access openai-beta query:_ query:api-version query:beta
x-stainless-arch x-stainless-async x-stainless-custom-poll-interval x-stainless-helper
x-stainless-helper-method x-stainless-lang x-stainless-os x-stainless-package-version
x-stainless-poll-helper x-stainless-read-timeout x-stainless-retry-count x-stainless-runtime
x-stainless-runtime-version x-stainless-timeout

via cdn-loop cf-connecting-ip cf-connecting-ipv6 cf-ew-via cf-ipcountry cf-pseudo-ipv4
cf-ray cf-visitor client-ip fastly-client-ip fly-client-ip forwarded:by forwarded:for
forwarded:proto real-ip true-client-ip x-azure-clientip x-azure-fdid x-azure-ref
x-azure-requestchain x-azure-socketip x-client-ip x-cluster-client-ip x-forwarded-for
x-forwarded-port x-forwarded-proto x-forwarded-scheme x-forwarded-server
x-original-forwarded-for x-real-ip x-timer x-true-client-ip x-varnish x-vercel-id
x-envoy-attempt-count x-envoy-decorator-operation x-envoy-expected-rq-timeout-ms
x-envoy-external-address x-envoy-internal x-envoy-peer-metadata x-envoy-peer-metadata-id
amz-sdk-invocation-id amz-sdk-request attempt attempt-count grpc-timeout request-timeout
retry-after retry-attempt retry-count x-attempt x-attempt-count x-retry x-retry-attempt
x-retry-count x-request-timeout x-server-timeout x-queue-start x-request-start dpop
idempotency-key signature signature-input x-idempotency-key x-amz-cf-id x-amz-content-sha256
x-amz-date x-amz-id-2 x-amz-request-id x-amzn-requestid x-amzn-trace-id x-arr-log-id
x-goog-date x-ms-content-sha256 x-ms-date query:x-amz-date query:x-amz-expires
query:x-amz-signature

b3 x-b3-flags x-b3-parentspanid x-b3-sampled x-b3-spanid x-b3-traceid
elastic-apm-traceparent grpc-trace-bin newrelic ot-tracer-sampled ot-tracer-spanid
ot-tracer-traceid sentry-trace singularityheader sw8 sw8-x traceparent tracestate
uber-trace-id x-cloud-trace-context x-datadog-origin x-datadog-parent-id
x-datadog-sampling-priority x-datadog-tags x-datadog-trace-id x-dynatrace x-honeycomb-trace
x-instana-l x-instana-s x-instana-t x-newrelic-id x-newrelic-transaction x-ot-span-context
baggage:sentry-environment baggage:sentry-org_id baggage:sentry-public_key
baggage:sentry-release baggage:sentry-replay_id baggage:sentry-sample_rand
baggage:sentry-sample_rate baggage:sentry-sampled baggage:sentry-trace_id
baggage:sentry-transaction

cookie:__cf_bm cookie:__cflb cookie:__cfruid cookie:_cfuvid cookie:cf_clearance
cookie:awsalb cookie:awsalbcors cookie:awsalbtg cookie:awsalbtgcors cookie:arraffinity
cookie:arraffinitysamesite cookie:_ga cookie:_gid
"""
_TRANSPORT: Final = frozenset(_TRANSPORT_NAMES.split())
"""Places that identify no caller: of the connection, the content and the program; of proxies,
retries, times and signatures; of tracing; cookies of load balancers and of statistics. A place that
is missing here and changes with each request still tears no session whose client sends its whole
history."""
_NUMBERED: Final = re.compile(
    r"(?!.*(?:user|owner|tenant|customer|account|team|org))(?:.*[-_.:])?"
    r"(?:trace|span|parent|request|correlation|transaction|invocation|operation|message|event|log"
    r"|nonce|date|time|timestamp)(?:[-_]?id)?|cookie:_ga_\w+"
)
"""Names of a request's own number or time, which some programs use for a person's name."""
_GENERATED: Final = re.compile(
    r"(?i)(?:[a-z]{1,7}[-_])?(?:[0-9a-f-]{16,}|(?=\w*\d)(?=\w*[a-z])[0-9a-z]{20,})"
    r"|[\d.:tz+-]{10,}|\w{3}, \d\d? \w{3} .*|gs\d\.\d\..*"
)
"""Forms of such a number: a random id, a long number, a time, and that of Google's statistics."""
_LISTS: Final = {"cookie": ";", "baggage": ",", "forwarded": "[;,]", "query": "&"}
"""Headers that list values, and what separates them. The query counts as a header."""
MAX_LIST_CHARS: Final = 4_096
"""A longer list counts as one value, so that no request takes long."""


def identity_places(headers: Headers, query: str) -> tuple[Places, Places]:
    """Return the places of a request that may identify its caller, with their values: first the
    credentials, which a caller keeps, and then all others. Header names are in lower case."""
    credentials: list[tuple[str, str]] = []
    other_places: list[tuple[str, str]] = []
    for name, value in _values_with_names([*headers, ("query", query)]):
        is_kept = _CREDENTIAL.fullmatch(name) is not None
        if is_kept and _SIGNED.match(value):
            signer = _SIGNER.search(value)
            is_kept, value = signer is not None, signer[1] if signer else value
        if is_kept:
            credentials.append((name, value))
        elif name in _HOSTS:
            host = host_of(value if "//" in value else f"//{value}") or value
            if ip_of(host) is None and not is_this_machine(host):
                other_places.append((name, host))
        elif not _identifies_no_caller(name, value):
            other_places.append((name, value))
    return tuple(sorted(credentials)), tuple(sorted(other_places))


def _identifies_no_caller(name: str, value: str) -> bool:
    if name in _TRANSPORT or name.startswith(OWN_HEADERS):
        return True
    return bool(_NUMBERED.fullmatch(name) and _GENERATED.fullmatch(value))


def _values_with_names(headers: Headers) -> Iterator[tuple[str, str]]:
    """The values of headers, cookies and the query. A word without a value is its own value."""
    for name, value in headers:
        if name not in _LISTS or len(value) > MAX_LIST_CHARS:
            yield name, value
            continue
        for part in filter(None, map(str.strip, re.split(_LISTS[name], value))):
            key, _, content = part.partition("=")
            yield f"{name}:{key.lower()}", content or key


_KEYS: Final = re.compile(
    r"(?=[Aabcfghnpsxy])(?<![^\W_])(?:(?P<anthropic>sk-ant-)|(?P<openrouter>sk-or-)"
    r"|(?P<google>AIza[\w-]{16}|ya29\.|AQ\.A[\w-]{16})|(?P<groq>gsk_\w{16})"
    r"|(?P<openai>sk-(?:proj|svcacct|admin)-|sk-[\w-]{16,200}T3BlbkFJ)|(?P<xai>xai-[^\W_]{16})"
    r"|(?P<perplexity>pplx-\w{16})|(?P<huggingface>(?<!-|_)hf_\w{16})"
    r"|(?P<cerebras>csk-\w{16})|(?P<fireworks>(?<!-|_)fw_\w{16})|(?P<nvidia>nvapi-[\w-]{16})"
    r"|(?P<amazon>ABSK\w{16}|bedrock-api-key-)|(?P<github>(?:gh[opsu]_|github_pat_)\w{16}))"
)
"""Beginnings of the keys that providers issue. A proxy's key can have any form."""
_KEY_NAME: Final = re.compile(
    r"(?!(?:x-)?(?:openai|oai|codex|anthropic|claude)-|cookie:.*(?:auth|token)|.*(?:idempot|csrf"
    r"|xsrf|websocket|cache|nonce|page|cursor|continu|public|partition|routing|session|oidc|aad"
    r"|trace|correl|request|lock|forwarded|cf-access|client-token))"
    r"(?:(?:.*[-_.:])?(?:authorization|auth|password|credentials?)|.*(?:key|secret|token))"
)
"""Names under which a server expects a key. Providers give own headers such names too; in others
such a word stands for a part of a list, or for a token that only the proxy reads."""
_PROXY_KEY: Final = re.compile(
    r"(?:cf-access|x-(?:amzn-oidc|forwarded|ms-token)).*(?:token|secret)"
)
"""Headers with a key that only a proxy before the gateway reads, whatever its form."""
_LOGIN: Final = re.compile(r"(?:sess|at)-|ek_")
"""Beginnings of OpenAI's keys for one login. Programs use such short words for other things too."""
_LONG_WORD: Final = re.compile(r"[\w.~+/=:-]{20,}")
"""A key without a known form. Words in place of a key, such as `none`, are shorter."""
_JWT: Final = re.compile(r"(?<![\w-])eyJ[\w-]*\.([\w-]*)(?:\.[\w-]*){1,3}")
_ISSUER: Final = re.compile(
    r'"iss"\s*:\s*"https://(?:[\w-]+\.)*(?:(?P<openai>(?:openai|chatgpt)\.com)'
    r'|(?P<anthropic>anthropic\.com|claude\.(?:ai|com)))[/"]'
)
_APIS: Final = re.compile(
    r"(?P<google>^/(?:upload/)?v1(?:beta|alpha)|^/v1/projects/"
    r"|:(?:countTokens|\w*(?:[gG]enerateContent|[pP]redict|[eE]mbedContents?))$)"
    r"|(?P<azure>^/openai/deployments/)|(?P<amazon>^/model/[^/]+/(?:invoke|converse))"
)
"""Paths of providers' own APIs, which the gateway cannot read."""
PROVIDER_HOSTS: re.Pattern[str] = re.compile(
    r"(?:.*?\.)??(?:(?P<anthropic>anthropic\.com|claude\.(?:ai|com))|(?P<xai>x\.ai)"
    r"|(?P<openai>openai\.com|chatgpt\.com)|(?P<google>googleapis\.com)|(?P<groq>groq\.com)"
    r"|(?P<openrouter>openrouter\.ai)|(?P<mistral>mistral\.ai)|(?P<deepseek>deepseek\.com)"
    r"|(?P<perplexity>perplexity\.ai)|(?P<cerebras>cerebras\.ai)|(?P<fireworks>fireworks\.ai)"
    r"|(?P<huggingface>huggingface\.co|endpoints\.huggingface\.cloud|hf\.space)"
    r"|(?P<github>github\.ai|githubcopilot\.com|ghe\.com|models\.inference\.ai\.azure\.com)"
    r"|(?P<nvidia>nvidia\.com)|(?P<azure>azure\.(?:cn|com|us))"
    r"|(?P<amazon>amazonaws\.com(?:\.cn)?|api\.aws))"
)
"""Providers' domains. A server elsewhere is a proxy, or a model of the user's own."""
UNKNOWN_PROVIDER: Final = "another provider"
MAX_ENCODINGS: Final = 3
"""Number of percent-encodings that are undone. Programs that pass an address on encode it twice."""
_BASIC: Final = re.compile(r"(?i)\bbasic\s+([\w+/-]+=*)")


def key_providers(headers: Headers, query: str, path: str) -> set[str]:
    """Return the providers to which the keys in a request belong, as far as their form and place
    show it. A key may be anywhere, also in the name of a header or of a query value."""
    texts = (path, query, *(text for pair in headers for text in pair))
    clear, issuers = _decode_text("\0".join(texts))
    found = {provider for provider in issuers if provider != UNKNOWN_PROVIDER}
    found |= {match.lastgroup or "" for match in _KEYS.finditer(clear)}
    for name, value in _values_with_names([*headers, ("query", query)]):
        if name == "x-goog-api-key":
            found.add("google")
        elif name == "api-key":
            found.add(UNKNOWN_PROVIDER)
        elif _KEY_NAME.fullmatch(name) and not _SIGNED.match(value):
            clear, issuers = _decode_text(value)
            words = [word for word in _LONG_WORD.findall(clear) if not _KEYS.search(word)]
            found |= issuers
            found |= {"openai" if _LOGIN.match(word) else UNKNOWN_PROVIDER for word in words}
    return found


def is_key_of_others(name: str, value: str, own_providers: set[str]) -> bool:
    """Return whether a header holds a key that no own provider issued."""
    name = name.lower()
    is_key = name == "x-goog-api-key" or _KEY_NAME.fullmatch(name) is not None
    if _PROXY_KEY.fullmatch(name):
        return True
    return is_key and not key_providers([(name, value)], "", "") <= own_providers


def api_of(path: str) -> str | None:
    """Return the provider whose own API has this path; None for paths that several have."""
    match = _APIS.search(path)
    return None if match is None else match.lastgroup


def _decode_text(text: str) -> tuple[str, set[str]]:
    """Return a text without percent-encodings, with user and password in place of their base64,
    and without its JSON web tokens, and the providers that issued these."""
    for _ in range(MAX_ENCODINGS):
        if "%" not in text or (unquoted_text := unquote(text)) == text:
            break
        text = unquoted_text
    text = _BASIC.sub(lambda match: _from_base64(match[1]) or match[0], text)
    issuers = {_issuer(match[1]) for match in _JWT.finditer(text)}
    return _JWT.sub(" ", text), issuers


def _issuer(payload: str) -> str:
    match = _ISSUER.search(_from_base64(payload))
    return UNKNOWN_PROVIDER if match is None else match.lastgroup or ""


def _from_base64(base64_text: str) -> str:
    """The text; empty if it is none."""
    with suppress(ValueError):
        plain = base64_text.replace("+", "-").replace("/", "_").rstrip("=")
        return urlsafe_b64decode(plain + "=" * (-len(plain) % 4)).decode()
    return ""
