"""Every key, through every source, in both spellings: it changes that value and nothing else."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.meta.settings_page import settings_page

from recollect.errors import SettingsError
from recollect.system.config import (
    PRESETS,
    Settings,
    active_keys,
    known_keys,
    load_settings,
    preset_settings,
    value_of,
)
from recollect.system.config.fields import (
    Choice,
    Duration,
    Flag,
    ListOf,
    Number,
    Optional,
    TextValue,
)
from recollect.system.config.keys import Key, camel_case, snake_case
from recollect.system.config.load import variable_name

EVERY_KEY = [path for path in known_keys() if path != "preset"]


def effective(settings: Settings) -> dict[str, Any]:
    return {path: value_of(settings, path) for path in known_keys()}


def changed(before: Settings, after: Settings) -> dict[str, Any]:
    old, new = effective(before), effective(after)
    return {path: new[path] for path in new if new[path] != old[path]}


def another(key: Key) -> tuple[Any, str, Any]:
    """Another value: as a file holds it, as a variable holds it, and as it is then in force."""
    shape = key.shape.inner if isinstance(key.shape, Optional) else key.shape
    if isinstance(shape, Flag):
        return not key.default, "off" if key.default else "yes", not key.default
    if isinstance(shape, Number) and shape.whole:
        number: float = (key.default or 6) + 1
        return number, str(number), number
    if isinstance(shape, Number):
        number = 0.45 if key.default != 0.45 else 0.55
        return number, str(number), number
    if isinstance(shape, Duration):
        return "7m", "420", 420.0 if shape.as_seconds else timedelta(minutes=7)
    if isinstance(shape, Choice):
        word = next(option for option in shape.options if option != key.default)
        return word, word, word
    if isinstance(shape, TextValue):
        return "other words", "other words", "other words"
    assert isinstance(shape, ListOf)
    item = shape.item.options[-1] if isinstance(shape.item, Choice) else "one*"
    return [item], item, (item,)


def misfits(key: Key) -> list[Any]:
    """Values that the key must refuse."""
    shape = key.shape.inner if isinstance(key.shape, Optional) else key.shape
    wrong: list[Any] = [{"a": 1}, object()]
    if not isinstance(key.shape, Optional):
        wrong.append(None)
    if isinstance(shape, Flag):
        wrong += ["true", 1, 0.0]
    elif isinstance(shape, Number):
        wrong += ["12", True, -1, float("nan"), float("inf"), *([1.5] if shape.whole else [1.01])]
    elif isinstance(shape, Duration):
        wrong += ["5 fortnights", "", -1, True, float("nan"), "1e3m", 1e300]
        wrong += [0] if shape.as_seconds else []
        wrong.remove(1e300) if shape.as_seconds else None
    elif isinstance(shape, Choice):
        wrong += ["nonsense", True, 3]
    elif isinstance(shape, TextValue):
        wrong += ["", "  ", 3]
    else:
        wrong += ["not a list", [""], [3], 3]
    return wrong


ROOT = Path(__file__).parents[3]

spellings = pytest.mark.parametrize("spelling", [snake_case, camel_case])


def every_key(check: Callable[..., None]) -> Callable[..., None]:
    """One test over all keys: there are many, and each takes no time. A failure names its key."""

    def over_all(**given: Any) -> None:
        for path in EVERY_KEY:
            try:
                check(path=path, **given)
            except BaseException as failed:
                failed.add_note(f"the key {path}")
                raise

    asked = inspect.signature(check)
    others = [one for name, one in asked.parameters.items() if name != "path"]
    over_all.__signature__ = asked.replace(parameters=others)  # type: ignore[attr-defined]
    over_all.__name__ = check.__name__
    return over_all


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@spellings
@every_key
def test_argument(path: str, spelling: Callable[[str], str]) -> None:
    typed, _, canonical = another(known_keys()[path])
    loaded = load_settings(arguments={spelling(path): typed}, environment={})
    assert changed(Settings(), loaded.settings) == {path: canonical}
    assert loaded.sources[path].kind == "argument"
    assert {kind.kind for key, kind in loaded.sources.items() if key != path} == {"default"}


@spellings
@every_key
def test_file(path: str, spelling: Callable[[str], str], tmp_path: Path) -> None:
    typed, _, canonical = another(known_keys()[path])
    file = tmp_path / "some.toml"
    file.write_text(f"{spelling(path)} = {json.dumps(typed)}\n")
    loaded = load_settings(environment={}, file=file)
    assert changed(Settings(), loaded.settings) == {path: canonical}
    assert str(loaded.sources[path]) == f"{file}: {spelling(path)}"


@every_key
def test_variable(path: str) -> None:
    _, text, canonical = another(known_keys()[path])
    loaded = load_settings(environment={variable_name(path): text})
    assert changed(Settings(), loaded.settings) == {path: canonical}
    assert str(loaded.sources[path]) == variable_name(path)


@every_key
def test_variable_in_the_other_spelling(path: str) -> None:
    _, text, canonical = another(known_keys()[path])
    variable = "RECOLLECT_" + camel_case(path).replace(".", "__")
    loaded = load_settings(environment={variable: text})
    assert changed(Settings(), loaded.settings) == {path: canonical}


@every_key
def test_values_that_do_not_fit_are_refused_by_name(path: str, tmp_path: Path) -> None:
    for wrong in misfits(known_keys()[path]):
        with pytest.raises(SettingsError, match=re.escape(path)):
            load_settings(arguments={path: wrong}, environment={})


@every_key
def test_a_setting_cannot_exist_with_a_value_that_does_not_fit(path: str) -> None:
    group = value_of(Settings(), path.rpartition(".")[0]) if "." in path else Settings()
    name = path.rpartition(".")[2]
    for wrong in misfits(known_keys()[path]):
        with pytest.raises(SettingsError, match=name):
            type(group)(**{name: wrong})


@every_key
def test_an_unfit_variable_is_refused_by_name(path: str) -> None:
    key = known_keys()[path]
    shape = key.shape.inner if isinstance(key.shape, Optional) else key.shape
    text = "-1" if isinstance(shape, Number) else ""
    if text == "" and "list" in shape.expects:
        text = "[1]"
    with pytest.raises(SettingsError, match=re.escape(variable_name(path))):
        load_settings(environment={variable_name(path): text})


@every_key
def test_what_does_nothing_yet_says_so_exactly_once(path: str) -> None:
    typed, _, _ = another(known_keys()[path])
    loaded = load_settings(arguments={path: typed}, environment={})
    said = [notice.message for notice in loaded.notices if notice.key == path]
    if known_keys()[path].effect.state == "active":
        assert loaded.notices == ()
    else:
        assert len(said) == len(loaded.notices) == 1
        assert "does not have yet" in said[0] or "without effect" in said[0]


@every_key
def test_setting_a_key_to_its_default_needs_no_remark(path: str) -> None:
    default = known_keys()[path].default
    loaded = load_settings(arguments={path: default}, environment={})
    assert loaded.settings == Settings()
    assert loaded.notices == ()
    assert loaded.sources[path].kind == "argument"


@every_key
def test_reading_a_canonical_value_gives_it_back(path: str) -> None:
    key = known_keys()[path]
    _, _, canonical = another(key)
    assert key.shape.read(canonical) == canonical
    assert key.shape.read(key.default) == key.default


def test_every_key_has_an_effect_and_a_line_in_the_docs_and_the_other_way_round() -> None:
    page = settings_page()
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", page, flags=re.MULTILINE))
    assert documented >= set(known_keys())
    foreign = page.partition("## What is read of an openclaw.json")[2]
    own = page.removesuffix(foreign)
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", own, flags=re.MULTILINE)) == set(known_keys())


def test_the_settings_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == settings_page(), "python -m tests.meta.settings_page > docs/settings.md"


def test_active_keys_are_those_of_the_turn_path() -> None:
    groups = {key.partition(".")[0] for key in active_keys()}
    assert set(active_keys()) <= set(known_keys())
    assert {"pruning", "trim", "tokens", "turn"} <= groups
    assert "facts" in groups


def test_every_default_of_the_openclaw_preset_differs_from_ours() -> None:
    ours = effective(Settings())
    for path, value in PRESETS["openclaw"].items():
        assert known_keys()[path].shape.read(value) == value != ours[path]


def test_the_openclaw_preset_sets_its_group_together() -> None:
    loaded = load_settings(arguments={"preset": "openclaw"}, environment={})
    assert changed(Settings(), loaded.settings) == {"preset": "openclaw", **PRESETS["openclaw"]}
    assert loaded.settings == preset_settings("openclaw")
    assert str(loaded.sources["index.max_segments"]) == 'preset "openclaw"'
    assert loaded.notices == (), "every key of the preset acts"


@pytest.mark.parametrize("path", list(PRESETS["openclaw"]))
def test_a_key_of_its_own_wins_over_the_preset(path: str) -> None:
    ours = known_keys()[path].default
    loaded = load_settings(arguments={"preset": "openclaw", path: ours}, environment={})
    assert value_of(loaded.settings, path) == ours
    others = {key: value for key, value in PRESETS["openclaw"].items() if key != path}
    assert changed(Settings(), loaded.settings) == {"preset": "openclaw", **others}
