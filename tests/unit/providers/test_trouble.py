"""A provider in trouble: what is tried again, what never is, and what an error may say."""

import logging
import socket
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.harness.model_server import Asked, ModelServer
from tests.unit.providers.wire_models import (
    KEY,
    SECRET,
    WIRES,
    model_at,
    request_of,
    streamed,
    text_of,
    using,
)

from recollect.core.values.model import Prompt
from recollect.errors import ModelError, ModelRefused, ModelUnavailable
from recollect.system.http import retry_after_seconds
from recollect.testing.scripted_model import Fails, Says, WireName

WAYS = ["ask", "stream"]
both = pytest.mark.parametrize("way", WAYS)
wires = pytest.mark.parametrize("wire", WIRES)


def work_of(way: str, model: Any, wire: WireName) -> Callable[[], Awaitable[Any]]:
    if way == "ask":
        return lambda: model.ask(Prompt(text=SECRET, system=SECRET))
    return lambda: streamed(model, request_of(wire))


def error_of(way: str, wire: WireName, server: ModelServer | str, **given: Any) -> ModelError:
    model = model_at(wire, server, **given)
    with pytest.raises(ModelError) as caught:
        using(model, work_of(way, model, wire))
    return caught.value


@wires
@both
@pytest.mark.parametrize("status", [302, 400, 401, 402, 403, 404, 422])
def test_what_can_never_succeed_is_asked_once(wire: WireName, way: str, status: int) -> None:
    """Lesson 5: a format error that is tried again on every account takes them all down."""
    with ModelServer([Fails(status=status)]) as server:
        error = error_of(way, wire, server)
        server.check()
    assert type(error) is ModelRefused
    assert str(status) in str(error)


@wires
@both
@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
def test_trouble_that_passes_is_tried_again(wire: WireName, way: str, status: int) -> None:
    with ModelServer([Fails(status=status), Fails(status=status), Says(text="at last")]) as server:
        model = model_at(wire, server)
        given = using(model, work_of(way, model, wire))
        server.check()
    assert (given.text if way == "ask" else text_of(given)) == "at last"


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    with ModelServer([Fails(status=429, headers={"Retry-After": "3600"})]) as server:
        started = time.monotonic()
        error = error_of("ask", "openai-chat", server)
        server.check()
    assert isinstance(error, ModelUnavailable)
    assert time.monotonic() - started < 4.0


def test_a_spent_account_is_told_and_not_tried_again() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with ModelServer([Fails(status=429, body=body)]) as server:
        error = error_of("ask", "openai-chat", server)
        server.check()
    assert isinstance(error, ModelUnavailable)
    assert "billing" in str(error)


@wires
@both
def test_nobody_there_is_unavailable(wire: WireName, way: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        error = error_of(way, wire, url)
    assert isinstance(error, ModelUnavailable)
    assert "cannot be reached" in str(error)


@wires
@both
def test_a_server_that_hangs_is_left_at_the_deadline(wire: WireName, way: str) -> None:
    with ModelServer([Says(text="never", hang_after_events=0)]) as server:
        started = time.monotonic()
        error = error_of(way, wire, server, deadline_seconds=0.3)
        assert time.monotonic() - started < 3.0
        server.check()  # the deadline is the end: not tried again
    assert isinstance(error, ModelUnavailable)
    assert "0.3 s" in str(error)


@wires
def test_a_stream_that_falls_silent_is_left_at_the_deadline(wire: WireName) -> None:
    with ModelServer([Says(text="and then", hang_after_events=4)]) as server:
        error = error_of("stream", wire, server, deadline_seconds=0.3)
        assert server.wait_until_hung_up()
    assert isinstance(error, ModelUnavailable)


@wires
@both
@pytest.mark.parametrize("status", [400, 401, 500])
def test_no_error_and_no_log_holds_the_key_or_what_was_said(
    wire: WireName, way: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def echo(asked: Asked) -> Fails:
        quoted = f"Incorrect key {KEY} in request {asked.content.decode()}"
        return Fails(status=status, body={"error": {"message": quoted, "type": KEY, "code": KEY}})

    with ModelServer(echo) as server:
        model = model_at(wire, server)
        with pytest.raises(ModelError) as caught:
            using(model, work_of(way, model, wire))
    held: BaseException | None = caught.value
    while held is not None:
        told = f"{held!r} {held} {''.join(traceback.format_exception(held))}"
        assert KEY not in told
        assert "Ferdinand" not in told
        held = held.__cause__ or held.__context__
    logged = " ".join(record.getMessage() for record in caplog.records)
    assert KEY not in logged
    assert "Ferdinand" not in logged
    assert KEY not in repr(model)


@pytest.mark.parametrize("way", WAYS)
def test_a_key_that_cannot_be_one_is_never_shown(way: str) -> None:
    with pytest.raises(ModelRefused) as caught:
        model_at("anthropic", "http://127.0.0.1:9", key="sk-häßlich\n")
    assert "sk-" not in str(caught.value)


@wires
@both
def test_a_provider_itself_is_not_asked_without_a_key(wire: WireName, way: str) -> None:
    model = model_at(wire, "", key=None)
    with pytest.raises(ModelRefused, match="needs a key"):
        using(model, work_of(way, model, wire))


@wires
def test_a_broken_tool_pairing_is_asked_once(wire: WireName) -> None:
    told = "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: x"
    with ModelServer([Fails(status=400, body={"error": {"message": told}})]) as server:
        error = error_of("stream", wire, server)
        server.check()
    assert "sending it again does not help" in str(error)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
        ({}, None),
    ],
)
def test_the_wish_to_wait_is_read_in_every_spelling(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_seconds(headers) == seconds


@wires
def test_no_log_holds_a_key_in_the_query_or_a_password(
    wire: WireName, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver logs every address at INFO."""
    caplog.set_level(logging.DEBUG)
    with ModelServer([Says(text="ok"), Says(text="ok")], pages={"/v1/models": {}}) as server:
        url = server.url.replace("http://", "http://me:hunter2@") + "?key=hunter3"
        model = model_at(wire, url, key=None)

        async def work() -> None:
            await model.ask(Prompt(text="hi"))
            await streamed(model, request_of(wire))
            await model.stated_window()

        using(model, work)
        assert all("key=hunter3" in asked.path for asked in server.asked)
        assert all("Basic" in asked.headers["authorization"] for asked in server.asked)
    logged = " ".join(record.getMessage() for record in caplog.records)
    assert "127.0.0.1" in logged, "the driver logs as it always did"
    assert "hunter" not in logged
