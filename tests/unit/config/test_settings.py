"""Every setting through every source: precedence, spellings, values that do not fit, hints."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import at_size
from tests.trusted_settings import write_trusted

from recollect.errors import SettingsError
from recollect.system.config import (
    PRESETS,
    LoadedSettings,
    Settings,
    load_settings,
    setting_keys,
    value_of,
)
from recollect.system.config.fields import SECONDS, _parts, expects, read_value
from recollect.system.config.keys import Key, snake_case
from recollect.system.config.load import NOT_SETTINGS, variable_name
from recollect.system.config.settings import Pruning, Turn

pytestmark = pytest.mark.usefixtures("usual_deadlines")

ROOT = Path(__file__).parents[3]
EVERY_KEY = [path for path in setting_keys() if path != "preset"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_text(text: str, **others: Any) -> LoadedSettings:
    file = Path("mine.toml").absolute()
    file.write_text(text, encoding="utf-8")
    return load_settings(file=file, environment={}, **others)


def changed(after: Settings) -> dict[str, Any]:
    values = {path: value_of(after, path) for path in setting_keys()}
    return {path: new for path, new in values.items() if new != setting_keys()[path].default}


def camel_case(path: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda hump: hump[1].upper(), path)


def another(key: Key) -> tuple[Any, str, Any]:
    """Another value: as a file holds it, as a variable holds it, and as it is then in force."""
    kind, bounds, _ = _parts(key.hint)
    if kind is bool:
        return not key.default, "off" if key.default else "yes", not key.default
    if bounds is not None and bounds.extra == SECONDS:
        return "7m", "420", 420.0
    if kind is int:
        number = (key.default or 6) + 1
        return number, str(number), number
    if kind is float:
        return 0.45, "0.45", 0.45
    if get_origin(kind) is Literal:
        word = next(option for option in get_args(kind) if option != key.default)
        return word, word, word
    if kind is str:
        return "other words", "other words", "other words"
    inner = get_args(kind)[0]
    item = get_args(inner)[-1] if get_origin(inner) is Literal else "one*"
    return [item], item, (item,)


def misfits(key: Key) -> list[Any]:
    kind, bounds, optional = _parts(key.hint)
    wrong: list[Any] = [{"a": 1}, object(), *([] if optional else [None])]
    if kind is bool:
        return [*wrong, "true", 1, 0.0]
    if bounds is not None and bounds.extra == SECONDS:
        return [*wrong, "5 fortnights", "", -1, True, float("nan"), float("inf"), "1e3m", 1e300]
    if kind in (int, float):
        return [*wrong, "12", True, -1, float("nan"), float("inf"), 1.01, 10**400]
    if get_origin(kind) is Literal:
        return [*wrong, "nonsense", True, 3]
    return [*wrong, "", "  ", 3] if kind is str else [*wrong, "no list", [""], [3], 3]


@pytest.mark.parametrize("spelling", [snake_case, camel_case])
def test_every_key_is_read_from_every_source(spelling: Callable[[str], str]) -> None:
    for path in EVERY_KEY:
        typed, text, value = another(setting_keys()[path])
        by_argument = load_settings(arguments={spelling(path): typed}, environment={})
        by_file = load_text(f"{spelling(path)} = {json.dumps(typed)}\n")
        variable = "RECOLLECT_" + spelling(path).replace(".", "__")
        variable = variable.upper() if spelling is snake_case else variable
        by_variable = load_settings(environment={variable: text})
        for loaded, kind in (
            (by_argument, "argument"),
            (by_file, "file"),
            (by_variable, "environment"),
        ):
            assert changed(loaded.settings) == {path: value}
            assert loaded.sources[path].kind == kind
            assert loaded.notices == ()
        assert str(by_file.sources[path]).endswith(f"mine.toml: {spelling(path)}")


@pytest.mark.parametrize("path", EVERY_KEY)
def test_a_value_that_does_not_fit_is_refused_with_key_place_value_and_what_fits(path: str) -> None:
    key = setting_keys()[path]
    group = value_of(Settings(), path.rpartition(".")[0]) if "." in path else Settings()
    name = path.rpartition(".")[2]
    wanted = re.escape(expects(key.hint))
    for wrong in misfits(key):
        message = rf"argument {re.escape(path)} must be {wanted}, not "
        with pytest.raises(SettingsError, match=message):
            load_settings(arguments={path: wrong}, environment={})
        with pytest.raises(SettingsError, match=name):
            type(group)(**{name: wrong})
    kind = _parts(key.hint)[0]
    text = "[1]" if get_origin(kind) is tuple else "-1" if kind in (int, float) else ""
    message = rf"{variable_name(path)} \({re.escape(path)}\) must be {wanted}"
    with pytest.raises(SettingsError, match=message):
        load_settings(environment={variable_name(path): text})


def test_every_default_is_read_as_itself() -> None:
    for path, key in setting_keys().items():
        assert read_value(key.hint, key.default) == key.default
        loaded = load_settings(arguments={path: key.default}, environment={})
        assert (loaded.settings, loaded.notices) == (Settings(), ())


def test_every_setting_is_used_outside_of_the_settings() -> None:
    source = "".join(
        file.read_text(encoding="utf-8")
        for file in (ROOT / "src/recollect").rglob("*.py")
        if "system/config" not in file.as_posix()
    )
    unused = [
        path for path in setting_keys() if not re.search(rf"\.{path.split('.')[-1]}\b", source)
    ]
    assert unused == []


def test_the_settings_page_names_every_key_and_variable() -> None:
    written = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", written, flags=re.MULTILINE)) == set(
        setting_keys()
    )
    assert all(f"`{name}`" in written for name in NOT_SETTINGS)


def test_a_preset_sets_its_keys_together_and_a_key_of_its_own_wins() -> None:
    preset = PRESETS["openclaw"]
    loaded = load_settings(arguments={"preset": "openclaw"}, environment={})
    assert changed(loaded.settings) == {"preset": "openclaw", **preset}
    assert str(loaded.sources["index.max_segments"]) == 'preset "openclaw"'
    for path in preset:
        ours = setting_keys()[path].default
        over = load_settings(arguments={"preset": "openclaw", path: ours}, environment={})
        assert value_of(over.settings, path) == ours
    variables = {"RECOLLECT_PRESET": "openclaw"}
    assert load_settings(environment=variables).settings.turn.trim_first is True
    back = load_settings(arguments={"preset": "recollect"}, environment=variables)
    assert back.settings == Settings()


def test_precedence(tmp_path: Path) -> None:
    openclaw = tmp_path / "openclaw.json"
    openclaw.write_text(
        "{agents: {defaults: {contextTokens: 1001, compaction: {reserveTokens: 1}}}}"
    )
    write_trusted("window_tokens = 1002\n[compaction]\nreserve_tokens = 2\n", tmp_path)
    for arguments, variables, expected in (
        ({"window_tokens": 1004}, {"RECOLLECT_WINDOW_TOKENS": "1003"}, (1004, "argument")),
        ({}, {"RECOLLECT_WINDOW_TOKENS": "1003"}, (1003, "environment")),
        ({}, {}, (1002, "file")),
    ):
        loaded = load_settings(arguments=arguments, environment=variables, openclaw=openclaw)
        assert (loaded.settings.window_tokens, loaded.sources["window_tokens"].kind) == expected
        assert loaded.settings.compaction.reserve_tokens == 2
    (tmp_path / "recollect.toml").unlink()
    assert load_settings(environment={}, openclaw=openclaw).settings.window_tokens == 1001
    assert load_settings(environment={"RECOLLECT_CONFIG": str(openclaw)}) == load_settings(
        environment={}, file=openclaw
    )
    named = tmp_path / "other.toml"
    named.write_text("window_tokens = 6000\n")
    by_variable = load_settings(environment={"RECOLLECT_CONFIG": str(named)})
    assert by_variable.settings.window_tokens == 6000


def test_the_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_WINDOW_TOKENS", "7000")
    assert load_settings().settings.window_tokens == 7000
    names = ("HOME", "DATA", "MODELS", "SOAK")
    others = {f"RECOLLECT_{name}": "/x" for name in names} | {"PATH": "x"}
    assert load_settings(environment=others).settings == Settings()


def test_an_optional_key_can_be_emptied_again() -> None:
    loaded = load_text('preset = "openclaw"\nindex.eviction_days = "none"\n')
    assert loaded.settings.index.eviction_days is None
    variables = {"RECOLLECT_RECALL__MIN_SCORE": "none", "RECOLLECT_PRESET": "openclaw"}
    assert load_settings(environment=variables).settings.recall.min_score is None


UNKNOWN = [
    ("compaction.keepRecentToken = 1", "did you mean compaction.keep_recent_tokens?"),
    ("hard_cap_tokens = 1", "did you mean recall.hard_cap_tokens?"),
    ("[prunning]\nmode = 'off'", "did you mean pruning?"),
    ("[recall.hybrid]\nvektor_weight = 0.1", "did you mean recall.hybrid.vector_weight?"),
    ("redaction.enable = false", "did you mean redaction.enabled?"),
    ("zzqqxx = 1", "`recollect doctor --settings` lists every key"),
    ("recall = 3", "recall is a group of settings"),
    ("[window_tokens]\nx = 3", "window_tokens must be a whole number"),
    ("[recall]\nhardCapTokens = 1\nhard_cap_tokens = 1\n", "both set recall.hard_cap_tokens"),
    ("window_tokens = 5000\nrecall = = 3\n", "line 2"),
    ("pruning.soft_trim.max_chars = 2000", "lower them or raise max_chars"),
    ("recall.hybrid = {vector_weight = 0, text_weight = 0}", "are both 0"),
    # A user who follows a hint into another group changes something else.
    ("facts.enable = false", "did you mean facts."),
    ("enabled = false", "`recollect doctor --settings` lists every key"),
    ("[redation]\nenabled = false", "`recollect doctor --settings` lists every key"),
    ("zzz.enabled = false", "`recollect doctor --settings` lists every key"),
]


@pytest.mark.parametrize(("text", "says"), UNKNOWN)
def test_a_wrong_file_names_itself_the_key_and_what_to_do(text: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_text(text)
    message = str(caught.value)
    assert says in message or (says.startswith("did you") and "doctor" in message)
    assert "\n" not in message
    assert "mine.toml" in message or says.startswith(("lower", "are both"))


@pytest.mark.parametrize("name", ["FACTS__ENABLE", "FACTS_ENABLED", "RECALL__ENABLE", "REDACT__ON"])
def test_no_hint_leads_from_a_variable_to_another_group(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environment={f"RECOLLECT_{name}": "false"})
    _, _, hint = str(caught.value).partition("did you mean RECOLLECT_")
    assert not hint or hint.startswith(name.partition("_")[0] + "__"), hint


def test_an_unknown_variable_or_argument_is_an_error() -> None:
    with pytest.raises(SettingsError, match="RECOLLECT_COMPACTION__KEEP_RECENT_TOKENS"):
        load_settings(environment={"RECOLLECT_COMPACTION_KEEP_RECENT_TOKENS": "1"})
    with pytest.raises(SettingsError, match="argument windowtokens"):
        load_settings(arguments={"windowtokens": 1}, environment={})
    twice = {"RECOLLECT_RECALL__hardCapTokens": "1", "RECOLLECT_RECALL__HARD_CAP_TOKENS": "2"}
    with pytest.raises(SettingsError, match="both set"):
        load_settings(environment=twice)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    for file, says in (
        (tmp_path / "absent.toml", r"cannot read the settings file .*absent\.toml"),
        (tmp_path, "cannot read"),
        (tmp_path / "latin.toml", "not UTF-8"),
    ):
        with pytest.raises(SettingsError, match=says):
            load_settings(file=file, environment={})
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbfwindow_tokens = 5000\r\n")
    loaded = load_settings(file=tmp_path / "bom.toml", environment={})
    assert loaded.settings.window_tokens == 5000


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [
        *[("5m", 300), ("90s", 90), ("1h", 3600), ("1h30m", 5400), ("250ms", 0.25), ("2d", 172800)],
        *[(45, 45), (1.5, 1.5), ("45", 45), (timedelta(minutes=2), 120), (" 5 M ", 300)],
    ],
)
def test_durations(spelled: Any, seconds: float) -> None:
    given = {"pruning.ttl": spelled, "turn.deadline_seconds": spelled}
    loaded = load_settings(arguments=given, environment={}).settings
    assert loaded.pruning == Pruning(ttl=seconds)
    assert loaded.turn == Turn(deadline_seconds=seconds)


@pytest.mark.parametrize(
    ("text", "items"), [("read, exec*", ("read", "exec*")), ('["a,b"]', ("a,b",)), ("", ())]
)
def test_lists_in_variables(text: str, items: tuple[str, ...]) -> None:
    loaded = load_settings(environment={"RECOLLECT_PRUNING__TOOLS__DENY": text})
    assert loaded.settings.pruning.tools.deny == items


@settings(max_examples=at_size(ci=50, full=300), deadline=None)
@given(path=st.sampled_from(list(setting_keys())), value=ANYTHING)
def test_any_argument_is_taken_or_refused_by_name(path: str, value: Any) -> None:
    try:
        loaded = load_settings(arguments={path: value}, environment={})
    except SettingsError as problem:
        assert path.rpartition(".")[2] in str(problem)
    else:
        assert loaded.sources[path].kind == "argument"
