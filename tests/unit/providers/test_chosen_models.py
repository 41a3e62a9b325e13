"""Settings into models: what a model of ours knows of itself."""

from __future__ import annotations

import pytest

from recollect import open_blocking_memory, open_memory
from recollect.adapters.wiring import models
from recollect.adapters.wiring.models import choose_model
from recollect.errors import MissingExtra, SettingsError
from recollect.system.config import load_settings


@pytest.mark.parametrize(
    ("name", "window"), [("claude-sonnet-4-5", 200_000), ("somebody-s-own", None)]
)
def test_how_much_of_a_window_is_used_is_not_how_large_it_is(
    name: str, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A good reply to a request over the set window is no overflow."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    given = {"models.provider": "anthropic", "models.main": name, "window_tokens": 20_000}
    model = choose_model(load_settings(arguments=given).settings, "main")
    assert model is not None
    assert model.window_tokens == window


WRONG: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({"models.provider": "anthropic"}, ("models.provider", "models.main", "models.summary")),
    (
        {"models.provider": "anthropic", "models.main": "m"},
        ("models.provider", "ANTHROPIC_API_KEY", "models.key_variable", "models.base_url"),
    ),
    ({"models.provider": "openai-chat", "models.summary": "m"}, ("OPENAI_API_KEY",)),
    ({"models.provider": "openai-responses", "models.extraction": "m"}, ("OPENAI_API_KEY",)),
    (
        {"models.provider": "openai-chat", "models.main": "m", "models.key_variable": "MY_KEY"},
        ("models.key_variable", "MY_KEY"),
    ),
    ({"models.provider": "mistral", "models.main": "m"}, ("models.provider", "openai-chat")),
    ({"models.main": "m"}, ("models.provider", "openai-chat")),
]


@pytest.mark.parametrize(("given", "named"), WRONG)
def test_a_model_that_could_never_be_asked_is_told_at_opening(
    given: dict[str, str], named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "MY_KEY"):
        monkeypatch.delenv(variable, raising=False)
    for opening in (open_memory, open_blocking_memory):
        with pytest.raises(SettingsError) as told:
            opening(settings=given)
        assert [name for name in named if name not in str(told.value)] == []


@pytest.mark.parametrize("named", ["main", "summary"])
def test_the_setting_that_names_a_model_of_nobody_is_the_one_told(named: str) -> None:
    with pytest.raises(SettingsError, match=f"models.{named} names a model but models.provider"):
        open_memory(settings={f"models.{named}": "claude-sonnet-4-5"})


def test_a_model_over_http_without_its_extra_is_told_at_opening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    monkeypatch.setattr(models, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match="remote"):
        open_memory(settings={"models.provider": "anthropic", "models.main": "m"})


def test_a_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    url = "http://127.0.0.1:1/v1"
    given = {"models.provider": "openai-chat", "models.main": "m", "models.base_url": url}
    assert open_memory(settings=given) is not None
