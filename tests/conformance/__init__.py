"""What OpenClaw's documents describe, item by item: `items.toml` names the tests that show it."""

import tomllib
from pathlib import Path
from typing import Any


def conformance_items() -> list[dict[str, Any]]:
    """Return the table of items."""
    text = (Path(__file__).parent / "items.toml").read_text("utf-8")
    items: list[dict[str, Any]] = tomllib.loads(text)["items"]
    return items
