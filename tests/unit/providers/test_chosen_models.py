"""Settings into models: what a model of ours knows of itself."""

from __future__ import annotations

import pytest

from recollect.config import load_settings
from recollect.wiring.models import choose_model


@pytest.mark.parametrize(
    ("name", "window"), [("claude-sonnet-4-5", 200_000), ("somebody-s-own", None)]
)
def test_how_much_of_a_window_is_used_is_not_how_large_it_is(name: str, window: int | None) -> None:
    """A good reply to a request over the set window is no overflow."""
    given = {"models.provider": "anthropic", "models.main": name, "window_tokens": 20_000}
    model = choose_model(load_settings(arguments=given).settings, "main")
    assert model is not None
    assert model.window_tokens == window
