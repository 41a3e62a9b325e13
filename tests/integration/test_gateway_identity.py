"""A name that others could guess joins no two callers, wherever a proxy puts who they are, and what
changes from request to request tears no session."""

import itertools
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any
from uuid import uuid4

import pytest
from tests.harness.gateway import PATHS, ask, gateway, turn
from tests.harness.model_server import Asked, ModelServer, Step

from recollect.core.values.model import Usage
from recollect.hosts.gateway.credentials import identity_places
from recollect.testing.scripted_model import Fails, Says

PATH = PATHS["anthropic"]


def answer(asked: Asked) -> Step:
    """Every answer is another one, as a model's are; an order to fail is followed."""
    if "x-fails" in asked.headers:
        return Fails(status=529)
    return Says(text=f"Answer {uuid4()}.", usage=Usage(input_tokens=9, output_tokens=1))


class Client:
    """A program that holds one conversation, and resends it with every request."""

    def __init__(self, url: str, **headers: str) -> None:
        self.url, self.headers, self.texts = url, headers, list[str]()
        self.sessions: list[str] = []

    def say(self, text: str, *, last: int = 100, query: str = "", **headers: Any) -> str:
        """Send a message with the last messages before it, and return the session's name."""
        self.texts.append(text)
        shown = self.texts[-last:]
        reply = ask(self.url, PATH + query, turn(shown), **{**self.headers, **headers})
        if reply.status == 200:
            self.texts.append(reply.json["content"][0]["text"])
        else:
            self.texts.pop()
        self.sessions.append(reply.headers["x-recollect-report"].rpartition("/")[0])
        return self.sessions[-1]


@contextmanager
def served() -> Iterator[str]:
    with ModelServer(answer) as server, gateway(server) as running:
        yield running.url


PLACES = [
    {"authorization": "Bearer KEY"},
    {"authorization": "Basic KEY"},
    {"x_litellm_api_key": "KEY"},
    {"x_portkey_api_key": "KEY"},
    {"ocp_apim_subscription_key": "KEY"},
    {"cf_aig_authorization": "Bearer KEY"},
    {"helicone_auth": "Bearer KEY"},
    {"openai_organization": "KEY"},
    {"openai_project": "KEY"},
    {"x_auth_token": "KEY"},
    {"x_forwarded_user": "KEY"},
    {"x_auth_request_email": "KEY@example.org"},
    {"x_tenant": "KEY"},
    {"anthropic_workspace_id": "KEY"},
    {"cookie": "_gatekeeper=KEY; _ga_X=1; _gid=2"},
    {"x_ms_client_principal_id": "KEY"},
    {"remote_user": "KEY"},
    {"proxy_authorization": "Basic KEY"},
    {"forwarded": "for=192.0.2.7;proto=https;keeper=KEY"},
    {"cookie": "theme=dark; session=KEY"},
    {"cookie": "lamp=KEY"},
    {"query": "?key=KEY"},
    {"query": "?beta=true&berth=KEY"},
    {"x_berth": "KEY"},
    {"keeper": "KEY"},
    {"x_dock_pass": "v1.KEY.x"},
    {"x_retry_keeper": "KEY"},
    {"baggage": "sentry-trace_id=7,keeper=KEY"},
    # words without a name or without a value
    {"query": "?KEY"},
    {"query": "?KEY="},
    {"query": "?beta=true&KEY"},
    {"cookie": "KEY"},
    {"cookie": "KEY="},
    {"cookie": "theme=dark; KEY; _gid=2"},
    {"baggage": "KEY"},
    # names that begin or end like those of transport
    {"cookie": "_ga_desk=KEY"},
    {"cookie": "__cf_keeper=KEY"},
    {"cookie": "awsalb_keeper=KEY"},
    {"content_owner": "KEY"},
    {"accept_keeper": "KEY"},
    {"if_keeper": "KEY"},
    {"sec_keeper": "KEY"},
    {"x_stainless_keeper": "KEY"},
    {"x_envoy_keeper": "KEY"},
    {"x_keeper_ip": "KEY"},
    {"x_user_trace": "KEY"},
    {"x_user_timeout": "KEY"},
    {"x_keeper_retry": "KEY"},
    {"correlation_id": "user-KEY"},
    {"x_request_id": "KEY"},
    {"x_trace_id": "KEY-1"},
    {"query": "?request_id=KEY"},
    {"baggage": "sentry-keeper=KEY"},
    # hosts of tenants
    {"host": "KEY.desk.example"},
    {"host": "KEY.desk.example:8443"},
    {"x_forwarded_host": "KEY.desk.example, proxy.example"},
    {"forwarded": "for=192.0.2.7;host=KEY.desk.example;proto=https, for=10.0.0.7"},
    {"origin": "https://KEY.desk.example"},
    {"referer": "https://KEY.desk.example/lockers?page=7"},
    {"x_forwarded_prefix": "/KEY"},
]
"""Places of credentials and of names, some of which no list knows."""


def put(place: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value.replace("KEY", key) for name, value in place.items()}


def test_equal_session_names_join_no_two_callers_wherever_their_credential_is() -> None:
    with served() as url:
        joined, torn = [], []
        for number, place in enumerate(PLACES):
            name = {"x_recollect_session": f"desk {number}"}
            alice, bob = (Client(url, **name) for _ in "ab")
            for client, key in ((alice, "alice"), (bob, "bob"), (alice, "alice"), (bob, "bob")):
                client.say("The locker's code?", **put(place, key), last=1)
            torn += [place for client in (alice, bob) if len(set(client.sessions)) > 1]
            joined += [place] if set(alice.sessions) & set(bob.sessions) else []
        assert joined == []
        assert torn == [], "a caller whose places stay the same may send any part of its history"


CHANGING = (
    *("traceparent", "x_request_id", "x_b3_spanid", "cf_ray", "idempotency_key", "x_unknown_thing"),
    *("date", "x_stainless_retry_count", "user_agent", "x_serial", "x_renewed_token", "dpop"),
)


def changing(number: int) -> dict[str, Any]:
    """Headers, cookies and a query value as they are in one request only."""
    values: dict[str, Any] = {name: f"{number}-{uuid4()}" for name in CHANGING}
    signed = (
        f"AWS4-HMAC-SHA256 Credential=AK/{number}/x, SignedHeaders=host, Signature={uuid4().hex}"
    )
    return {
        **values,
        "x_serial": str(number),
        "authorization": signed,
        "cookie": f"__cf_bm={uuid4()}; rolling={uuid4()}; theme=dark",
        "query": f"?beta=true&sent={number}",
    }


@pytest.mark.parametrize("named", [True, False])
def test_what_changes_on_every_request_tears_no_session_also_after_a_restart(named: bool) -> None:
    name = {"x_recollect_session": "desk"} if named else {}
    with ModelServer(answer) as server:
        clients = [Client("", x_berth=key, **name) for key in ("alice", "bob")]
        numbers = itertools.count()
        for _ in range(2):
            with gateway(server) as running:
                for _ in range(3):
                    for client in clients:
                        client.url = running.url
                        client.say(f"My own code is {uuid4()}.", **changing(next(numbers)))
                for fails in (True, True, False):  # retries continue it too
                    headers = changing(next(numbers)) | ({"x_fails": "1"} if fails else {})
                    clients[0].say("Once more.", **headers)
        assert [len(set(client.sessions)) for client in clients] == [1, 1]
        assert clients[0].sessions[0] != clients[1].sessions[0]


def of_one_request() -> list[dict[str, str]]:
    """Headers, cookies and query values as tracers, proxies and signers add them to a request."""
    unique = uuid4()
    number, span, sent = str(unique.int)[:19], unique.hex[:16], time.time() + unique.int % 10**6
    day = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(sent))
    encoded = urlsafe_b64encode(unique.bytes * 4).decode().rstrip("=")
    return [
        {"traceparent": f"00-{unique.hex}-{span}-01", "tracestate": f"dd=s:1;p:{span}"},
        {"x_request_id": str(unique)},
        {"x_amzn_trace_id": f"Root=1-{span[:8]}-{unique.hex[:24]};Parent={span};Sampled=0"},
        {"user_agent": f"desk/{unique}"},
        {"x_forwarded_for": f"2001:db8::{span[:4]}, 10.0.0.7"},
        {"x_datadog_parent_id": number, "x_datadog_trace_id": number[::-1]},
        {"elastic_apm_traceparent": f"00-{unique.hex}-{span}-01"},
        {"x_instana_t": unique.hex, "x_instana_s": span},
        {"newrelic": encoded},
        {"sw8": f"1-{encoded}-{encoded}-3-{encoded}"},
        {"x_amz_date": day, "x_amz_content_sha256": unique.hex * 2},
        {"x_amz_cf_id": f"{encoded}=="},
        {"x_azure_ref": f"{day}-r1{span}-{encoded}"},
        {"x_vercel_id": f"fra1::{span[:5]}-{number[:13]}-{span}"},
        {"x_ms_date": formatdate(sent, usegmt=True), "x_ms_content_sha256": encoded},
        {"signature_input": f'sig1=("@method");created={sent:.0f};nonce="{span}"'},
        {
            "authorization": "AWS4-HMAC-SHA256 Credential=AKIA7/20261119/eu/bedrock/aws4_request, "
            f"SignedHeaders=host, Signature={unique.hex * 2}"
        },
        {"authorization": f'Digest username="desk", nonce="{span}", response="{unique.hex}"'},
        {"correlation_id": unique.hex},
        {"x_correlation_id": f"corr-{unique}"},
        {"request_id": f"req_{unique.hex[:24]}"},
        {"x_transaction_id": f"01{unique.hex.upper()[:24]}"},
        {"x_timestamp": f"{sent:.3f}"},
        {"idempotency_key": f"stainless-python-retry-{unique}"},
        {"dpop": f"eyJhbGciOiJFUzI1NiJ9.{encoded}.{encoded}"},
        {"query": f"?request_id={unique}&X-Amz-Date={day}&X-Amz-Signature={unique.hex}"},
        {"cookie": f"_ga_X7Y8=GS2.1.s{sent:.0f}$o1$g1$t{sent:.0f}; __cf_bm={encoded}"},
        {"host": f"127.0.0.1:{unique.int % 50_000}", "origin": "http://localhost:3000"},
    ]


def test_a_client_that_sends_its_newest_message_only_is_not_torn_by_tracing() -> None:
    with served() as url:
        torn = []
        for number, kind in enumerate(of_one_request()):
            client = Client(url, x_recollect_session=f"desk {number}", x_api_key="alice")
            for _ in range(3):
                client.say(f"Note {uuid4()}.", last=1, **of_one_request()[number])
            torn += [kind] if len(set(client.sessions)) > 1 else []
        assert torn == []


def test_two_signers_of_requests_have_two_sessions() -> None:
    ways = (
        "AWS4-HMAC-SHA256 Credential=KEY/7/x, Signature=N",
        'Digest username="KEY", response="N"',
        'Hawk id="KEY", mac="N"',
    )
    with served() as url:
        for way in ways:
            alice, bob = (Client(url, x_recollect_session="desk") for _ in "ab")
            for client, key in ((alice, "alice"), (bob, "bob"), (alice, "alice")):
                signed = way.replace("KEY", key).replace("N", uuid4().hex)
                client.say("The locker's code?", last=1, authorization=signed)
            assert len(set(alice.sessions)) == 1
            assert set(alice.sessions).isdisjoint(bob.sessions)


def test_a_random_session_name_is_bound_to_the_credential_alone() -> None:
    with served() as url:
        name = str(uuid4())
        alice = Client(url, x_recollect_session=name, x_api_key="alice")
        bob = Client(url, x_recollect_session=name, x_api_key="bob")
        for number in range(3):
            alice.say("A note.", last=1, **changing(number) | {"authorization": ""})
        bob.say("A note.", last=1)
        assert len(set(alice.sessions)) == 1
        assert bob.sessions[0] != alice.sessions[0]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_caller_whose_conversation_another_one_took_over_does_not_meet_the_others_words(
    restarts: bool,
) -> None:
    """Bob sends the whole of Alice's conversation, and continues it under the same name."""
    secret = f"Bob's code is {uuid4()}."
    with ModelServer(answer) as server:
        with gateway(server) as running:
            alice = Client(running.url, x_recollect_session="desk", x_berth="alice")
            bob = Client(running.url, x_recollect_session="desk", x_berth="bob")
            alice.say("Who keeps the light?")
            bob.texts = list(alice.texts)
            bob.say(secret)
            if not restarts:
                alice.say("And who keeps the log?")
        with gateway(server) as running:
            alice.url = bob.url = running.url
            alice.say("What is my code?")
            alice.say("What is my code?", last=1)
            bob.say("And who keeps the log?")
        assert set(alice.sessions[1:]).isdisjoint(bob.sessions)
        assert len(set(bob.sessions)) == 1
        assert secret not in str([asked.content for asked in server.asked if is_alices(asked)])


def is_alices(asked: Asked) -> bool:
    return asked.headers.get("x-berth") == "alice"


@pytest.mark.parametrize("last", [1, 100])
def test_a_caller_that_left_messages_out_keeps_them_from_callers_with_other_places(
    last: int,
) -> None:
    """The session holds more than its last request, so repeating that proves too little."""
    with ModelServer(answer) as server:
        with gateway(server) as running:
            alice = Client(running.url, x_recollect_session="desk", x_berth="alice")
            alice.say("My locker's code is 4711-0815.")
            alice.say("Who keeps the light?", last=last)
        with gateway(server) as running:
            alice.url = running.url
            alice.say("And who keeps the log?", last=1)
            bob = Client(running.url, x_recollect_session="desk", x_berth="bob")
            bob.texts = alice.texts[-2:]
            bob.say("What is my locker's code?")
        assert len(set(alice.sessions)) == 1
        assert bob.sessions[0] not in alice.sessions


def test_another_key_never_continues_a_session_even_if_it_repeats_all_of_it() -> None:
    keys = [{"x_api_key": "KEY"}, {"x_user_id": "KEY"}, {"query": "?key=KEY"}]
    with served() as url:
        for key, named in itertools.product(keys, ({}, {"x_recollect_session": "desk"})):
            alice, bob = Client(url, **named), Client(url, **named)
            alice.say("Who keeps the light?", **put(key, "alice"))
            bob.texts = list(alice.texts)
            bob.say("And who keeps the log?", **put(key, "bob"))
            alice.say("And who keeps the log?", **put(key, "alice"))
            assert bob.sessions[0] != alice.sessions[0] == alice.sessions[1]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("forwarded", 'for="[2001:db8::1]:4711";by=10.0.0.1;proto=https;host=localhost:8788'),
        ("host", "[::1]:8788"),
        ("x-forwarded-host", "10.0.0.7"),
        ("x-real-ip", "192.0.2.1"),
        ("x-envoy-attempt-count", "2"),
        ("sec-fetch-mode", "cors"),
        ("x-stainless-os", "Linux"),
        ("cookie", "__cf_bm=a; AWSALB=b; _ga=c"),
        ("baggage", "sentry-trace_id=7,sentry-release=1"),
    ],
)
def test_the_way_of_a_request_identifies_no_caller(header: str, value: str) -> None:
    assert identity_places([(header, value)], "beta=true&_=7") == ((), ())
