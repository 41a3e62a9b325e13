"""What people say of services and their settings when they correct themselves, by domain.

Owns half of the material that chains of corrections are made of; `more_domains` has the rest. Each
domain has things that are alike but not the same, values, and the ways in which people say that a
thing has a value, as a first statement or as a correction. They were written down before they were
tried against the code, and the naming of subjects was then taught the 74 of 5,212 it had missed:
what holds of them is a property, not a measure of unseen text.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.values.fact import FactType


@dataclass(frozen=True, slots=True)
class Domain:
    """One kind of thing that people correct."""

    name: str
    type: FactType
    things: tuple[str, ...]
    values: tuple[str, ...]
    wordings: tuple[str, ...]
    chinese: tuple[str, ...] = ()


_SERVICES = (
    "staging API",
    "production API",
    "staging admin API",
    "billing service",
    "billing worker",
    "auth gateway",
    "search service",
    "node 3",
    "node 4",
    "metrics exporter",
    "dev server",
    "preview server",
)

DOMAINS = (
    Domain(
        "port",
        "config",
        _SERVICES,
        ("8443", "9000", "9001", "8080", "3000", "5173", "8088", "7070"),
        (
            "the {thing} listens on port {value}",
            "{thing} port is {value} now",
            "sorry, the port of the {thing} is {value}",
            "we moved the {thing} to port {value}",
            "actually the {thing} runs on port {value}",
        ),
        (
            "{thing} 的端口是 {value}",
            "更正一下，{thing} 的端口改成 {value} 了",
            "{thing} 现在监听 {value} 端口",
        ),
    ),
    Domain(
        "timeout",
        "config",
        ("API", "API read", "payment client", "database connection", "webhook", "login", "cache"),
        ("10 seconds", "30s", "45 s", "2 minutes", "5 minutes", "90 seconds", "500 ms", "1 hour"),
        (
            "the {thing} timeout is {value}",
            "set the {thing} timeout to {value}",
            "change the {thing} timeout to {value} please",
            "we raised the timeout of the {thing} to {value}",
        ),
        ("{thing} 的超时时间是 {value}", "{thing} 超时改为 {value}"),
    ),
    Domain(
        "choice",
        "decision",
        (
            "orders database",
            "inventory database",
            "session storage",
            "message bus",
            "full-text search",
            "image storage",
            "payments",
            "email delivery",
            "feature flags",
        ),
        (
            "PostgreSQL",
            "Redis",
            "DynamoDB",
            "Elasticsearch",
            "MinIO",
            "Stripe",
            "Sendgrid",
            "Kafka",
        ),
        (
            "we decided to use {value} for the {thing}",
            "let's go with {value} for {thing}",
            "for the {thing} we will use {value}",
            "we switched the {thing} to {value}",
            "change of plan: use {value} for the {thing} instead",
        ),
        ("{thing} 用 {value}", "我们决定 {thing} 改用 {value}"),
    ),
    Domain(
        "version",
        "config",
        ("Python", "Node", "Java", "PostgreSQL", "Django", "React", "Kubernetes", "Terraform"),
        ("3.11", "20", "17", "16.2", "4.2", "18.3.1", "1.29", "v22.1.0"),
        (
            "we use {thing} {value}",
            "we upgraded to {thing} {value}",
            "the {thing} version is {value}",
            "{thing} is pinned to version {value}",
        ),
        ("{thing} 版本是 {value}", "{thing} 升级到 {value} 版本了"),
    ),
    Domain(
        "path",
        "implementation",
        (
            "Stripe webhook",
            "Github webhook",
            "health check",
            "auth code",
            "migrations",
            "error log",
            "access log",
            "payment handler",
        ),
        (
            "/api/stripe/hook",
            "/v2/hooks",
            "src/core/auth",
            "/var/log/app.log",
            "db/migrations",
            "/healthz",
            "src/handlers/pay.py",
            "/srv/data/out",
        ),
        (
            "the {thing} is at {value}",
            "the {thing} path is {value}",
            "the {thing} moved to {value}",
            "we moved the {thing} to {value}",
        ),
        ("{thing} 的路径是 {value}", "{thing} 在 {value}"),
    ),
    Domain(
        "host",
        "config",
        ("database", "replica database", "redis", "build server", "mail relay", "staging database"),
        (
            "db1.internal",
            "db2.internal",
            "10.0.3.7",
            "10.0.3.8",
            "box.example.com",
            "eu.example.com",
            "192.168.1.20",
            "old.corp",
        ),
        (
            "the {thing} host is {value}",
            "{thing} host changed to {value}",
            "the host of the {thing} is {value} now",
        ),
        ("{thing} 的主机是 {value}", "{thing} 主机换成 {value}"),
    ),
    Domain(
        "limit",
        "config",
        ("upload", "avatar upload", "request body", "API key", "attachment", "export"),
        ("10 MB", "20MB", "50 MB", "1 GB", "5 MB", "250 MB", "2 GB", "100 KB"),
        (
            "the {thing} limit is {value}",
            "{thing} limit is now {value}",
            "the maximum {thing} size is {value}",
            "the limit for {thing} was raised to {value}",
        ),
        ("{thing} 上限是 {value}", "{thing} 的限制调到 {value}"),
    ),
    Domain(
        "schedule",
        "config",
        (
            "backup",
            "database backup",
            "weekly sync",
            "retro",
            "certificate renewal",
            "report export",
            "cleanup job",
        ),
        (
            "every day at 3am",
            "Sundays at 4:00",
            "nightly at 2:00",
            "Mondays at 10:00",
            "every Tuesday at 9am",
            "Fridays at 17:30",
            "every hour",
            "Thursdays at 11:00",
        ),
        (
            "the {thing} runs {value}",
            "the {thing} is scheduled {value}",
            "the {thing} happens {value} now",
        ),
    ),
)
