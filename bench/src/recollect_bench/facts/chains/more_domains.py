"""What people say of work, rules, dates and in Chinese when they correct themselves, by domain.

Owns the other half of the material of chains, see `domains`; how a thing is forbidden and allowed
again; and statements that nothing else replaces.
"""

from __future__ import annotations

from recollect.values.fact import FactType
from recollect_bench.facts.chains.domains import Domain

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
