"""What people say when they correct themselves, by domain: the material of chains of corrections.

Each domain has things that are alike but not the same, values, and the ways in which people say
that a thing has a value, first or as a correction; how a thing is forbidden and allowed again; and
statements that nothing else replaces. They were written down before they were tried against the
code, and the naming of subjects was then taught the 74 of 5,212 it had missed: what holds of them
is a property, not a measure of unseen text.
"""

from __future__ import annotations

from dataclasses import dataclass

from recollect.values.fact import FactType

# Services and their settings


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


MORE_DOMAINS = (
    Domain(
        "state",
        "task_state",
        (
            "refund logic",
            "partial refund logic",
            "login page",
            "password reset",
            "search reindexing",
            "PDF export",
            "invoice import",
            "onboarding flow",
        ),
        ("not implemented yet", "in progress", "blocked", "done", "broken"),
        ("the {thing} is {value}", "{thing} is {value}", "update: the {thing} is {value} now"),
    ),
    Domain(
        "rule",
        "decision",
        (
            "deploy on Fridays",
            "push to main",
            "merge without review",
            "edit generated files",
            "run migrations by hand",
            "log request bodies",
        ),
        ("no", "yes"),
        ("{value} {thing}",),
    ),
    Domain(
        "preference",
        "preference",
        ("",),
        ("tabs over spaces", "spaces over tabs"),
        ("I prefer {value}", "actually I prefer {value}", "from now on I prefer {value}"),
        ("我更喜欢 {value}",),
    ),
    Domain(
        "branch",
        "config",
        ("default", "release", "hotfix", "docs", "integration"),
        ("main", "develop", "trunk", "stable", "next", "release/2.0", "master", "prod-line"),
        (
            "the {thing} branch is {value}",
            "{thing} branch is {value} now",
            "we changed the {thing} branch to {value}",
        ),
        ("{thing} 分支是 {value}", "{thing} 分支改成 {value}"),
    ),
    Domain(
        "owner",
        "architecture",
        (
            "billing service",
            "auth service",
            "design system",
            "release process",
            "mobile app",
            "data pipeline",
        ),
        ("Anna", "Bob", "Carol", "Dmitri", "Wei", "Fatima", "Jonas", "Priya"),
        (
            "{value} owns the {thing}",
            "the {thing} is owned by {value}",
            "{value} is responsible for the {thing} now",
            "the {thing} is maintained by {value}",
        ),
        ("{thing} 由 {value} 负责", "{thing} 现在由 {value} 负责"),
    ),
    Domain(
        "lifetime",
        "config",
        (
            "access token",
            "refresh token",
            "session cookie",
            "invite link",
            "signed URL",
            "cache entry",
        ),
        ("15 minutes", "30 minutes", "7 days", "24 hours", "90 days", "1 hour", "2 weeks", "60 s"),
        (
            "{thing}s expire after {value}",
            "the {thing} ttl is {value}",
            "{thing} ttl changed to {value}",
            "the {thing} expires after {value} now",
        ),
        ("{thing} 的有效期是 {value}", "{thing} 有效期改为 {value}"),
    ),
    Domain(
        "replicas",
        "config",
        ("web", "worker", "search", "ingest", "gateway", "scheduler", "staging web"),
        ("2", "3", "4", "5", "6", "8", "12", "16"),
        (
            "{thing} has {value} replicas",
            "we run {value} replicas of the {thing}",
            "the {thing} replicas were raised to {value}",
            "set {thing} replicas to {value}",
        ),
        ("{thing} 的副本数是 {value}", "{thing} 副本数改成 {value}"),
    ),
    Domain(
        "deadline",
        "decision",
        ("beta", "closed beta", "audit", "migration", "tax filing", "press release"),
        (
            "March 3",
            "March 17",
            "2026-04-01",
            "May 12",
            "June 30",
            "2026-07-15",
            "August 1",
            "September 9",
        ),
        (
            "the {thing} deadline is {value}",
            "the deadline for the {thing} is {value}",
            "the {thing} deadline moved to {value}",
        ),
        ("{thing} 的截止日期是 {value}", "{thing} 截止日期改到 {value}"),
    ),
    Domain(
        "switch",
        "config",
        (
            "feature flag new-checkout",
            "feature flag dark-launch",
            "debug mode",
            "maintenance mode",
            "rate limiting",
            "email verification",
        ),
        ("enabled", "disabled"),
        ("{thing} is {value}", "the {thing} is {value} now", "update: {thing} is {value}"),
    ),
    Domain(
        "chinese services",
        "config",
        (
            "订单服务",
            "支付服务",
            "支付网关",
            "用户服务",
            "推荐服务",
            "预发环境网关",
            "库存服务",
            "报表服务",
        ),
        ("8081", "8082", "9100", "9200", "7001", "6001", "5005", "8899"),
        (),
        (
            "{thing}的端口是{value}",
            "{thing}端口改成{value}了",
            "不对，{thing}的端口应该是 {value}",
            "{thing}现在监听{value}端口",
        ),
    ),
    Domain(
        "chinese choices",
        "decision",
        ("积分数据库", "会员数据库", "会话存储", "消息队列", "图片存储", "短信通道", "日志收集"),
        ("PostgreSQL", "MySQL", "Redis", "Kafka", "MinIO", "RabbitMQ", "ClickHouse", "TiDB"),
        (),
        (
            "{thing}用 {value}",
            "我们决定{thing}使用 {value}",
            "{thing}改用 {value} 了",
            "{thing}换成 {value}",
        ),
    ),
    Domain(
        "chinese states",
        "task_state",
        ("积分逻辑", "会员积分逻辑", "活动页面", "导出功能", "发票导入", "搜索重建"),
        ("还没实现", "正在开发", "已经完成了", "坏了"),
        (),
        ("{thing}{value}", "更新一下：{thing}{value}"),
    ),
)

RULES = {
    "no": ("never {thing}", "do not {thing}", "don't {thing} anymore"),
    "yes": ("you can {thing} again", "it's fine to {thing} now", "feel free to {thing}"),
}
"""How people forbid a thing and allow it again."""

UNRELATED: tuple[tuple[FactType, str], ...] = (
    ("config", "the office wifi password is on the whiteboard"),
    ("config", "the API is written in Go"),
    ("config", "the API returns JSON"),
    ("config", "API keys are rotated by the platform team"),
    ("decision", "we decided to write the docs in Markdown"),
    ("decision", "we decided to hire two more engineers"),
    ("decision", "we decided against a rewrite of the billing service"),
    ("implementation", "the billing service retries failed charges with backoff"),
    ("implementation", "the auth gateway strips cookies from upstream responses"),
    ("architecture", "the search service reads from the orders database"),
    ("architecture", "the orders database feeds the search service"),
    ("issue", "memory leak in the image worker"),
    ("issue", "memory leak in the mail worker"),
    ("task_state", "the staging API needs a load test"),
    ("preference", "I prefer short answers"),
    ("preference", "I prefer small pull requests"),
    ("preference", "I like to see the plan first"),
    ("config", "订单服务依赖支付服务"),
    ("config", "支付服务依赖用户服务"),
    ("decision", "我们决定每个模块都写文档"),
    ("preference", "我喜欢简短的回答"),
)
"""Facts that nothing else here replaces, made of the same words."""
