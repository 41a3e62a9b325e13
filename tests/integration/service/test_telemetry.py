"""What operators see of a node and a worker: metrics and logs, and nothing that was said."""

import asyncio
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from tests.harness.model_server import ModelServer
from tests.harness.waiting import PATIENCE_SECONDS, wait_until
from tests.integration.long_talk import notes
from tests.integration.service.nodes import Caller, Node, add_tenant, chat, late_body, reply

from recollect.adapters.stores.postgres.store import PostgresFleet
from recollect.cli import main
from recollect.core.boundary import Boundary
from recollect.core.values.batch import Batch, NewJob
from recollect.core.values.model import Prompt
from recollect.core.values.tenant import tenant_space
from recollect.errors import RecollectError
from recollect.hosts.service.app import watch
from recollect.hosts.service.mcp import mcp_for_tenants
from recollect.hosts.service.metrics import Metrics
from recollect.hosts.service.telemetry import space_mark, telling
from recollect.system.config import load_settings, setting_keys
from recollect.system.telemetry import LISTENERS, measure_action
from recollect.testing.scripted_model import Says
from recollect_bench.postgres_server import TestDatabase

ROOT = Path(__file__).parents[3]


@contextmanager
def told(**telemetry: Any) -> Iterator[Metrics]:
    """Metrics, and what else is asked for."""
    given = {f"telemetry.{name}": value for name, value in telemetry.items()}
    settings = load_settings(arguments={"telemetry.metrics_port": 0, **given}).settings
    with telling(settings) as metrics:
        assert metrics is not None
        yield metrics


def scraped(metrics: Metrics) -> str:
    answer = httpx2.get(f"http://127.0.0.1:{metrics.port}/metrics", trust_env=False)
    assert answer.status_code == 200
    return answer.text


def samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Values by name and labels, as Prometheus reads them."""
    return {
        (one.name, *(f"{name}={value}" for name, value in sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(scraped(metrics))
        for one in family.samples
    }


def test_what_a_node_did_is_counted(database: TestDatabase) -> None:
    tenant, key = add_tenant(database, "counted", requests=4)
    with told() as metrics, Node(database) as node:
        watch(node.service, metrics)
        caller = Caller(node.url, key)
        base = "/v1/spaces/s/sessions/one"
        for text in ("The launch word is heron.", "What is the launch word?"):
            caller.post(f"{base}/prepare", {"request": chat(text)})
        caller.post(f"{base}/observe", {"reply": reply("Noted.")})
        caller("GET", "/v1/spaces/none/facts", expect=404)
        caller("GET", "/v1/spaces", expect=429)
        Caller(node.url, "rk_wrong")("GET", "/v1/tenant", expect=401)
        caller("GET", "/metrics", expect=404)  # tenants have no way to it
        found = samples(metrics)
        text = scraped(metrics)
    counted = "recollect_requests_total"
    assert found[counted, "operation=prepare", "status=200"] == 2
    assert found[counted, "operation=facts", "status=404"] == 1
    assert found[counted, "operation=spaces", "status=429"] == 1
    assert found["recollect_request_duration_seconds_count", "operation=prepare"] == 2
    assert found["recollect_requests_refused_total", "reason=rate"] == 1
    assert found["recollect_requests_refused_total", "reason=unauthorized"] == 1
    assert found["recollect_requests_in_progress",] == 0
    assert sum(value for name, value in found.items() if name[0] == "recollect_recalls_total") == 2
    assert found["recollect_stage_duration_seconds_count", "stage=align"] == 2
    assert found["recollect_pool_size",] == node.settings.serve.concurrency + 4
    assert found["recollect_pool_connections", "state=idle"] >= 1
    assert found["recollect_store_available",] == 1
    assert found["recollect_store_transactions_total",] > 5
    assert found["recollect_store_round_trips_total",] > 5
    assert found["recollect_open_memories",] == 1
    assert found["process_resident_memory_bytes",] > 1e6
    assert str(tenant) not in text
    assert LISTENERS == []


async def test_a_stage_that_fails_is_counted_by_its_cause() -> None:
    async def fails() -> int:
        raise RecollectError("away")

    async def late() -> int:
        await asyncio.sleep(5)
        return 0

    with told() as metrics:
        boundary = Boundary(turn_seconds=60, stage_seconds=0.01)
        for work in (fails, late):
            async with boundary.stage("recall", waits=True):
                await work()
        found = samples(metrics)
    failures = "recollect_stage_failures_total"
    assert found[failures, "cause=RecollectError", "stage=recall"] == 1
    assert found[failures, "cause=late", "stage=recall"] == 1


def test_scrapers_choose_format_compression_and_path() -> None:
    with told() as metrics, httpx2.Client(trust_env=False) as scraper:
        for path in ("", "metrics"):
            url = f"http://127.0.0.1:{metrics.port}/{path}"
            headers = {"accept": "application/openmetrics-text", "accept-encoding": "gzip"}
            answer = scraper.get(url, headers=headers)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("application/openmetrics-text")
            assert answer.headers["content-encoding"] == "gzip"
            assert answer.text.endswith("# EOF\n")


def test_the_metrics_of_the_docs_are_those_there_are() -> None:
    page = (ROOT / "docs/operations/monitoring.md").read_text()
    described = set(re.findall(r"^\| `(recollect_\w+)`", page, re.MULTILINE))
    there = {
        family.name + ("_total" if family.type == "counter" else "_info" * (family.type == "info"))
        for family in Metrics().registry.collect()
        if family.name.startswith("recollect_")
    }
    assert described == there


def test_a_port_that_is_taken_is_told(database: TestDatabase) -> None:
    with told() as metrics:
        given = ["serve", "--store", database.app_url, "--port", "0"]
        taken = {"RECOLLECT_TELEMETRY__METRICS_PORT": str(metrics.port)}
        done = CliRunner().invoke(main, given, env=taken)
    assert done.exit_code == 2
    assert "telemetry.metrics_port" in done.stderr


def test_a_compaction_and_its_model_are_counted(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = add_tenant(database, "compacted")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    texts = [f"{n}: the crane of pier {n} lifts {n * 7} tons. " * 40 for n in range(12)]
    with ModelServer(lambda asked: Says(text=notes(Prompt(text=asked.content.decode())))) as model:
        models = {"provider": "anthropic", "summary": "scripted", "base_url": model.url}
        arguments = {f"models.{name}": value for name, value in models.items()}
        with told() as metrics, Node(database, given=arguments) as node:
            body = {"request": chat(*texts, "so?"), "window_tokens": 8_000}
            path = "/v1/spaces/s/sessions/one/compact"
            done = Caller(node.url, key)("POST", path, json=body)
            found = samples(metrics)
    assert done.json()["compacted"], done.text
    assert found["recollect_compactions_total", "outcome=reduced", "trigger=manual"] == 1
    assert found["recollect_model_duration_seconds_count", "model=scripted"] >= 1
    assert found["recollect_model_tokens_total", "direction=input", "model=scripted"] > 0


def test_nothing_is_loaded_and_little_done_where_nobody_listens() -> None:
    code = "import sys, recollect.hosts.service.app, recollect.cli.serve; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "prometheus_client" not in done.stdout.split()
    assert measure_action("stage", "recall") is measure_action("transaction", "read")


# Logs, and that nothing shows what was said

WORDS = ("zebrafink", "quokkasalt", "wombatlilac")
SECRET = "planted-9f3c1a7b55d2e8"


class Heard:
    """All that an operator's tools would have got."""

    def __init__(self) -> None:
        self.lines = io.StringIO()
        self.metrics = ""

    def everything(self) -> str:
        return "\n".join((self.lines.getvalue(), self.metrics))


@contextmanager
def listening(log_format: str) -> Iterator[tuple[Heard, Metrics]]:
    heard = Heard()
    with told(log_format=log_format) as metrics:
        handler = logging.getLogger().handlers[-1]
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(heard.lines)
        yield heard, metrics
        heard.metrics = scraped(metrics)


def planted(caller: Caller) -> None:
    """Requests with words and a secret wherever something can stand."""
    word, other, third = WORDS
    text = f"{word} says {SECRET} to {other}"
    odd = {
        "traceparent": f"00-{third}-{SECRET}-01",
        "tracestate": f"{third}={other}",
        "baggage": f"user={word}",
        "x-request-id": third,
        "user-agent": SECRET,
        "cookie": f"k={SECRET}",
        "x-forwarded-for": other,
    }
    place = f"/v1/spaces/{word}%40example.com/sessions/{other}"
    slow = {"content": late_body(text), "headers": {"x-request-timeout": "0.01"}}
    body = {"request": {**chat(text, third, f"What says {word}?"), "metadata": {"user_id": word}}}
    caller("POST", f"{place}/prepare", json=body, headers={**odd, "idempotency-key": third})
    caller("POST", f"{place}/observe", json={"reply": reply(text)}, headers=odd)
    caller("POST", f"{place}/compact", json=body, headers=odd, expect=None)
    caller("POST", f"/v1/spaces/{word}%40example.com/search", json={"query": text})
    caller("POST", f"/v1/spaces/{word}%40example.com/facts", json={"content": text})
    for method, path, given in (
        ("GET", f"/{word}/{other}?{third}={SECRET}", {}),
        ("GET", f"/v1/{word}", {}),
        ("GET", f"/v1/spaces/{word}%40example.com/facts?{third}={SECRET}", {}),
        ("GET", f"/v1/spaces/{other}/facts", {}),
        ("DELETE", f"/v1/spaces/{word}/facts/{third}", {}),
        ("PUT", f"{place}/prepare", {"content": text}),
        ("POST", f"{place}/prepare", {"content": text}),
        ("POST", f"{place}/prepare", {"json": {third: text}}),
        ("POST", f"{place}/prepare", {"json": {"request": {"messages": text}}}),
        ("POST", f"{place}/prepare", {"json": body, "headers": {"content-type": f"a/{third}"}}),
        ("GET", "/v1/tenant", {"headers": {"authorization": f"Bearer {SECRET}"}}),
        ("GET", "/v1/tenant", {"headers": {"x-request-timeout": third}}),
        ("POST", f"{place}/prepare", slow),
    ):
        caller(method, path, expect=None, **given)
    for message in (
        {"method": "tools/call", "params": {"name": "memory_store", "arguments": {"text": text}}},
        {"method": "tools/call", "params": {"name": third, "arguments": {other: word}}},
        {"method": third, "params": {"name": word, "_meta": odd}},
        {"method": "resources/read", "params": {"uri": f"recollect://{word}/{third}"}},
    ):
        caller(
            "POST",
            f"/v1/spaces/{word}%40example.com/mcp",
            json={"jsonrpc": "2.0", "id": f"{third}", **message},
            headers={"accept": "application/json, text/event-stream"},
            expect=None,
        )


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_nothing_that_a_request_holds_is_told(database: TestDatabase, log_format: str) -> None:
    tenant, key = add_tenant(database, f"planted {log_format}")
    with listening(log_format) as (heard, _), Node(database, mcp=mcp_for_tenants) as node:
        planted(Caller(node.url, key))
        away = {"store.url": f"postgresql://{WORDS[0]}:{SECRET}@127.0.0.1:9/none"}
        with Node(database, given=away) as alone:
            place = f"/v1/spaces/{WORDS[0]}/sessions/{WORDS[1]}"
            body = {"request": chat(WORDS[2])}
            Caller(alone.url, key)("POST", f"{place}/prepare", json=body, expect=503)
    everything = heard.everything()
    for word in (*WORDS, SECRET, key, key.rsplit("_", 1)[1], "example.com"):
        assert word not in everything, word
    assert 'operation="prepare"' in heard.metrics
    lines = heard.lines.getvalue().splitlines()
    if log_format == "json":
        told_of = [json.loads(line) for line in lines]
        kept = [one for one in told_of if one["event"] == "request"]
        first = next(one for one in kept if one["operation"] == "prepare")
        mark = space_mark(tenant_space(tenant, f"{WORDS[0]}@example.com"), b"")
        assert (first["status"], first["tenant"]) == (200, str(tenant))
        assert first["space"] == mark
        assert first["ms"] > 0
        assert len(first["request"]) == 32
        assert any(one.get("reason") == "deadline" for one in kept)
        assert any(one.get("reason") == "unavailable" for one in kept)
    else:
        assert any(" operation=prepare status=200 " in line for line in lines)
    assert 'mcp_tool_calls_total{outcome="done",tool="memory_store"} 1.0' in heard.metrics


async def test_a_worker_counts_its_jobs_and_names_no_space(database: TestDatabase) -> None:
    name = f"{WORDS[0]}@example.com"
    fleet = await PostgresFleet.open(database.app_url)
    store = await fleet.space(name)
    jobs = tuple(
        NewJob(kind=kind, key=kind, run_at=time.time() - 30) for kind in ("expire", "pack")
    )
    await store.write(Batch(at=time.time(), jobs=jobs))
    await fleet.close()
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", "worker"],
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "RECOLLECT_STORE__URL": database.app_url,
            "RECOLLECT_RECALL__EMBEDDER": "none",
            "RECOLLECT_TELEMETRY__LOG_FORMAT": "json",
            "RECOLLECT_TELEMETRY__METRICS_PORT": "0",
        },
    )
    assert process.stderr is not None
    with process:
        try:
            port = json.loads(process.stderr.readline())["metrics_port"]
            at = f"http://127.0.0.1:{port}/metrics"
            wait_until(lambda: "recollect_jobs_total{" in httpx2.get(at, trust_env=False).text)
            page = httpx2.get(at, trust_env=False).text
            age = re.search(r"^recollect_jobs_due_age_seconds (\S+)", page, re.MULTILINE)
        finally:
            process.send_signal(signal.SIGTERM)
        lines = process.stderr.read()
        assert process.wait(PATIENCE_SECONDS) == 0
    assert re.search(r'recollect_jobs_total\{kind="\w+",outcome="done"\} \d', page)
    assert age is not None
    assert float(age.group(1)) >= 0
    assert re.search(r'"event":"job","kind":"\w+","outcome":"done","ms":\d', lines)
    assert WORDS[0] not in lines + page
    assert "example.com" not in lines + page


def test_every_setting_of_telemetry_acts_here() -> None:
    acting = {"metrics_port", "metrics_host", "log_format"}
    assert {f"telemetry.{one}" for one in acting} == {
        key for key in setting_keys() if key.startswith("telemetry.")
    }
    nobodys = "192.0.2.1"  # kept for documentation: no machine has it
    with pytest.raises(RecollectError, match=nobodys), told(metrics_host=nobodys):
        pass
