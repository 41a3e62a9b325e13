"""The dashboard and the alert rules ask for metrics and labels that nodes and workers report."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.service.nodes import Caller, Node, add_tenant, chat, reply

from recollect.hosts.service.api import ROUTES
from recollect.hosts.service.app import watch
from recollect.hosts.service.telemetry import telling
from recollect.system.config import load_settings
from recollect_bench.postgres_server import TestDatabase

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
OF_PROMETHEUS = {"job", "instance", "le"}
_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*" | \[[^]]*\] | [a-zA-Z_:][\w:.]* | \d[\w.]* | [<>=!]=|=~|!~ | \S', re.X
)
_WORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless"}


def dashboard_queries() -> Iterator[tuple[str, str]]:
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def alert_queries() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


QUERIES = [*dashboard_queries(), *alert_queries()]


def asked(query: str) -> tuple[list[tuple[str, dict[str, str]]], set[str]]:
    """The metrics of a query with their matchers, and the labels by which it groups."""
    tokens = _TOKEN.findall(query)
    metrics: list[tuple[str, dict[str, str]]] = []
    grouped: set[str] = set()
    at = 0
    while at < len(tokens):
        token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
        if token in _WORDS:
            if following == "(" and not token.startswith(("and", "or", "unless", "group")):
                end = tokens.index(")", at)
                grouped |= set(tokens[at + 2 : end]) - {","}
                at = end
        elif re.match(r"[a-zA-Z_:]", token) and following != "(" and following not in _WORDS:
            matchers: dict[str, str] = {}
            if following == "{":
                end = tokens.index("}", at)
                inside = tokens[at + 2 : end]
                matchers = {inside[i]: inside[i + 2].strip('"') for i in range(0, len(inside), 4)}
                at = end
            metrics.append((token, matchers))
        at += 1
    return metrics, grouped


def test_a_query_is_read_as_prometheus_reads_it() -> None:
    metrics, grouped = asked(
        'sum by (a, le) (rate(one_total{x="1", y!~"2|3"}[5m])) / ignoring (b) group_left max(two)'
    )
    assert metrics == [("one_total", {"x": "1", "y": "2|3"}), ("two", {})]
    assert grouped == {"a", "le", "b"}


@pytest.fixture(scope="module")
def labels(database: TestDatabase) -> dict[str, set[str]]:
    """The labels of each metric of a node that has served, from its live /metrics."""
    _, key = add_tenant(database, "watched", requests=3)
    settings = load_settings(arguments={"telemetry.metrics_port": 0}).settings
    with ExitStack() as stack:
        metrics = stack.enter_context(telling(settings))
        assert metrics is not None
        node = stack.enter_context(Node(database))
        watch(node.service, metrics)
        caller = Caller(node.url, key)
        base = "/v1/spaces/s/sessions/one"
        caller.post(f"{base}/prepare", {"request": chat("The gate is open.")})
        caller.post(f"{base}/observe", {"reply": reply("Noted.")})
        caller.post(f"{base}/compact", {"request": chat("x")})
        caller("GET", "/v1/spaces", expect=429)
        page = httpx2.get(f"http://127.0.0.1:{metrics.port}/metrics", trust_env=False).text
        unseen = {
            sample: set(one._labelnames)
            for one in metrics._counters.values()
            for sample in (f"{one._name}_total",)
        }
        caller.http.close()
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(page):
        suffix = "_total" if family.type == "counter" else ""
        found[f"{family.name}{suffix}"] |= set()
        for one in family.samples:
            found[one.name] |= set(one.labels)
        if family.type == "histogram":  # it may have no value yet
            found[f"{family.name}_bucket"].add("le")
    for name, names in unseen.items():
        assert name in found, "every counter is on the page, also before it counts"
        found[name] |= names
    return found


@pytest.mark.parametrize(("name", "query"), QUERIES, ids=[name for name, _ in QUERIES])
def test_a_query_names_only_what_is_reported(
    name: str, query: str, labels: dict[str, set[str]]
) -> None:
    metrics, grouped = asked(query)
    assert metrics, name
    for metric, matchers in metrics:
        assert metric in labels, f"{name}: {metric}"
        assert set(matchers) <= labels[metric] | OF_PROMETHEUS, f"{name}: {metric} {matchers}"
        if "operation" in matchers:
            assert matchers["operation"] in {route.operation for route in ROUTES}
    known = OF_PROMETHEUS.union(*(labels[metric] for metric, _ in metrics))
    assert grouped <= known, f"{name}: {grouped - known}"
    assert query.count("(") == query.count(")")


def test_texts_of_alerts_name_labels_that_their_query_keeps() -> None:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            said = " ".join(rule["annotations"].values())
            wanted = set(re.findall(r"\$labels\.(\w+)", said))
            _, grouped = asked(rule["expr"])
            aggregates = re.search(r"\b(sum|max|min|avg|histogram_quantile)\b", rule["expr"])
            assert not aggregates or wanted <= grouped, rule["alert"]
            assert rule["labels"]["severity"] in ("page", "ticket")
