"""The type of a statement that a person writes down without naming one."""

from __future__ import annotations

import pytest

from recollect.core.facts.written import WrittenStatement, draft_of
from recollect.core.values.fact import FactType

WRITTEN: dict[FactType, tuple[str, ...]] = {
    "decision": (
        "Use ClickHouse instead of Elasticsearch for logs",
        "We decided to bill by the hour",
        "Chose Bazel rather than Make",
        "Drop support for 32-bit builds",
    ),
    "implementation": (
        "The health check endpoint is /internal/live",
        "Discounts are computed by the function apply_rebates",
        "The scheduler lives in jobs/cron.go",
        "Thumbnails are written with libvips",
    ),
    "config": (
        "The broker of the test rig listens on port 61616",
        "Backups go to 10.4.0.17 over rsync",
        "MAX_WORKERS is 12 in production",
    ),
    "issue": (
        "Checkout fails for cards without a postcode",
        "The PDF export crashes on right-to-left text",
        "Timezone bug in the weekly report",
    ),
    "task_state": (
        "Invoice archiving not yet started",
        "Waiting for the vendor to send the certificate",
        "Accessibility review is in progress",
    ),
    "architecture": (
        "Layered, with ports and adapters around the domain",
        "An event bus connects the warehouses",
        "Microservices in one cluster per region",
    ),
    "preference": (
        "I prefer squash merges",
        "Never send mails on weekends",
        "Do not deploy with failing tests",
        "Answer in Portuguese",
        "Call the customer only after lunch",
    ),
}


@pytest.mark.parametrize(
    ("type_", "text"), [(type_, text) for type_, texts in WRITTEN.items() for text in texts]
)
def test_the_type_is_told_by_the_words(type_: FactType, text: str) -> None:
    assert draft_of(WrittenStatement(content=text, at=1.0)).type == type_


def test_a_named_type_holds() -> None:
    written = WrittenStatement(content="Checkout fails on Sundays", at=1.0, type="decision")
    assert draft_of(written).type == "decision"
