"""Precedence, both spellings, unknown keys, broken files, durations."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.trusted_settings import write_trusted

from recollect.errors import SettingsError
from recollect.system.config import LoadedSettings, Settings, load_settings
from recollect.system.config.fields import shapes_of, written
from recollect.system.config.keys import REMOVED_KEYS, known_keys
from recollect.system.config.settings import Pruning, Reset


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_file(tmp_path: Path, text: str, **others: Any) -> LoadedSettings:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file=file, environment={}, **others)


def test_nothing_set_is_the_defaults() -> None:
    loaded = load_settings(environment={})
    assert loaded.settings == Settings()
    assert loaded.notices == ()
    assert {source.kind for source in loaded.sources.values()} == {"default"}


def test_precedence(tmp_path: Path) -> None:
    (tmp_path / "openclaw.json").write_text(
        "{agents: {defaults: {contextTokens: 1001, compaction: {reserveTokens: 1}}}}"
    )
    write_trusted(
        'preset = "openclaw"\nwindow_tokens = 1002\nrecall.block_tokens = 7\n'
        "[compaction]\nreserve_tokens = 2\n",
        tmp_path,
    )
    environment = {"RECOLLECT_WINDOW_TOKENS": "1003", "RECOLLECT_RECALL__BLOCK_TOKENS": "8"}
    openclaw = tmp_path / "openclaw.json"

    kinds = []
    for arguments in ({"window_tokens": 1004}, {}):
        for variables in (environment, {}):
            loaded = load_settings(arguments=arguments, environment=variables, openclaw=openclaw)
            kinds.append((loaded.settings.window_tokens, loaded.sources["window_tokens"].kind))
    assert kinds == [
        (1004, "argument"),
        (1004, "argument"),
        (1003, "environment"),
        (1002, "file"),
    ]
    assert load_settings(environment={}, openclaw=openclaw).settings.compaction.reserve_tokens == 2
    assert load_settings(environment={}).settings.recall.block_tokens == 7
    (tmp_path / "recollect.toml").unlink()
    assert load_settings(environment={}, openclaw=openclaw).settings.window_tokens == 1001


def test_the_preset_may_come_from_any_source() -> None:
    by_variable = load_settings(environment={"RECOLLECT_PRESET": "openclaw"})
    assert by_variable.settings.turn.trim_first is True
    over = load_settings(
        arguments={"preset": "recollect"}, environment={"RECOLLECT_PRESET": "openclaw"}
    )
    assert over.settings == Settings()


def test_an_optional_key_can_be_emptied_again(tmp_path: Path) -> None:
    loaded = load_file(tmp_path, 'preset = "openclaw"\nindex.eviction_days = "none"\n')
    assert loaded.settings.index.eviction_days is None
    again = load_settings(
        arguments={"preset": "openclaw"}, environment={"RECOLLECT_RECALL__MIN_SCORE": "none"}
    )
    assert again.settings.recall.min_score is None


def test_nested_and_dotted_arguments_are_the_same() -> None:
    nested = load_settings(arguments={"recall": {"hybrid": {"textWeight": 0.2}}}, environment={})
    dotted = load_settings(arguments={"recall.hybrid.text_weight": 0.2}, environment={})
    assert nested.settings == dotted.settings


def test_the_file_in_the_current_folder_and_the_one_a_variable_names(tmp_path: Path) -> None:
    (tmp_path / "recollect.toml").write_text("window_tokens = 5000\n")
    (tmp_path / "other.toml").write_text("window_tokens = 6000\n")
    assert load_settings(environment={}).settings.window_tokens == 5000
    named = {"RECOLLECT_CONFIG": str(tmp_path / "other.toml")}
    assert load_settings(environment=named).settings.window_tokens == 6000


def test_the_process_environment_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_WINDOW_TOKENS", "7000")
    assert load_settings().settings.window_tokens == 7000


def test_variables_that_are_not_settings_are_left_alone() -> None:
    names = ("HOME", "DATA", "MODELS", "SOAK")
    loaded = load_settings(
        environment={f"RECOLLECT_{name}": "/x" for name in names} | {"PATH": "x"}
    )
    assert loaded.settings == Settings()


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("compaction.keepRecentToken = 1", "compaction.keep_recent_tokens"),
        ("compaction.kep_recent_tokens = 1", "compaction.keep_recent_tokens"),
        ("hard_cap_tokens = 1", "recall.hard_cap_tokens"),
        ("[prunning]\nmode = 'off'", "did you mean pruning?"),
        ("recal.enabled = false", "did you mean recall?"),
        ("[recall.hybrid]\nvektor_weight = 0.1", "recall.hybrid.vector_weight"),
        # OpenClaw's own name of a key
        ("memoryContext.maxSegments = 1", "index.max_segments"),
        ("contextTokens = 1", "window_tokens"),
    ],
)
def test_an_unknown_key_names_itself_its_file_and_the_nearest_one(
    tmp_path: Path, text: str, nearest: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_file(tmp_path, text)
    message = str(caught.value)
    assert "mine.toml" in message
    assert nearest in message
    assert "\n" not in message


def test_a_removed_setting_in_a_file_is_one_notice(tmp_path: Path) -> None:
    text = (
        "window_tokens = 5000\n[facts]\nenabled = false\nidle_seconds = 30\n"
        "[query]\nuserMessages = 4\n[compaction.flush]\nfiles = ['daily']\n"
    )
    loaded = load_file(tmp_path, text)
    assert (loaded.settings.window_tokens, loaded.settings.facts.idle_seconds) == (5000, 30)
    assert loaded.settings.redaction.enabled
    said = {notice.key: notice.message for notice in loaded.notices}
    assert set(said) == {"facts.enabled", "query.user_messages", "compaction.flush.files"}
    assert len(loaded.notices) == 3 and all(notice.without_effect for notice in loaded.notices)
    for key, message in said.items():
        assert "mine.toml" in message and "is no longer a setting and has no effect" in message, key
    assert "only if models.extraction is set" in said["facts.enabled"]
    assert load_file(tmp_path, "[query]\n# user_messages = 4\n").settings == Settings()


def test_a_removed_setting_is_a_notice_in_every_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by_variable = load_settings(environment={"RECOLLECT_FACTS__DIGESTS": "on"})
    (notice,) = by_variable.notices
    assert notice.message.startswith("RECOLLECT_FACTS__DIGESTS is no longer a setting")
    assert "only if models.extraction is set" in notice.message
    assert by_variable.settings == Settings()
    by_argument = load_settings(arguments={"jobs": {"max_attempts": 3}}, environment={})
    (notice,) = by_argument.notices
    assert notice.message == ("argument jobs.max_attempts is no longer a setting and has no effect")
    (tmp_path / "recollect.toml").write_text("window_tokens = 5000\nfacts.enabled = false\n")
    caplog.clear()
    for _ in range(2):
        found = load_settings(environment={})
        assert found.settings.window_tokens == 5000
        assert [one.key for one in found.notices] == ["facts.enabled"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert "recollect.toml: facts.enabled is no longer a setting" in line
    for_agent = "[agents.night]\nfacts.enabled = false\n"
    assert load_file(tmp_path, for_agent).notices == ()
    (notice,) = load_file(tmp_path, for_agent, agent="night").notices
    assert "[agents.night]: facts.enabled is no longer" in notice.message


def test_no_removed_setting_is_a_setting() -> None:
    assert not REMOVED_KEYS.keys() & known_keys().keys()


@pytest.mark.parametrize(
    "text",
    [
        "facts.enable = false",
        "facts.enabld = false",
        "enabled = false",
        "[redation]\nenabled = false",
        "zzz.enabled = false",
        "[facts]\nrules = 1",
        "query = 3",
    ],
)
def test_no_hint_leads_to_another_group(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_file(tmp_path, text)
    _, _, hint = str(caught.value).partition("did you mean ")
    assert not hint or hint.startswith("facts."), hint


@pytest.mark.parametrize("name", ["FACTS__ENABLE", "FACTS_ENABLED", "RECALL__ENABLE", "REDACT__ON"])
def test_no_hint_leads_from_a_variable_to_another_group(name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(environment={f"RECOLLECT_{name}": "false"})
    _, _, hint = str(caught.value).partition("did you mean RECOLLECT_")
    assert not hint or hint.startswith(name.partition("_")[0] + "__"), hint


def test_a_misspelt_key_of_redaction_gets_its_hint(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"did you mean redaction\.enabled\?"):
        load_file(tmp_path, "redaction.enable = false")


def test_an_unknown_variable_names_the_variable_that_was_meant() -> None:
    with pytest.raises(SettingsError, match="RECOLLECT_COMPACTION__KEEP_RECENT_TOKENS"):
        load_settings(environment={"RECOLLECT_COMPACTION_KEEP_RECENT_TOKENS": "1"})


def test_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(SettingsError, match="argument windowtokens"):
        load_settings(arguments={"windowtokens": 1}, environment={})


def test_a_key_like_no_other_points_to_the_list(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="`recollect doctor` lists every key"):
        load_file(tmp_path, "zzqqxx = 1")


def test_both_spellings_of_one_key_in_one_place_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"both set recall\.hard_cap_tokens; keep one"):
        load_file(tmp_path, "[recall]\nhardCapTokens = 1\nhard_cap_tokens = 1\n")
    variables = {"RECOLLECT_RECALL__hardCapTokens": "1", "RECOLLECT_RECALL__HARD_CAP_TOKENS": "2"}
    with pytest.raises(SettingsError, match="both set"):
        load_settings(environment=variables)


def test_a_group_is_not_a_value_and_a_value_is_not_a_group(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="recall is a group"):
        load_file(tmp_path, "recall = 3")
    with pytest.raises(SettingsError, match="window_tokens must be a whole number"):
        load_file(tmp_path, "[window_tokens]\nx = 3")


def test_pruning_may_be_given_as_a_bare_mode(tmp_path: Path) -> None:
    assert load_file(tmp_path, 'pruning = "adaptive"').settings.pruning.mode == "adaptive"
    by_variable = load_settings(environment={"RECOLLECT_PRUNING": "off"})
    assert by_variable.settings.pruning.mode == "off"


def test_broken_files_say_where_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"mine\.toml is not valid TOML: .*line 2"):
        load_file(tmp_path, "window_tokens = 5000\nrecall = = 3\n")
    with pytest.raises(SettingsError, match=r"cannot read the settings file .*absent\.toml"):
        load_settings(file=tmp_path / "absent.toml", environment={})
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(file=tmp_path, environment={})
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load_settings(file=tmp_path / "latin.toml", environment={})


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "bom.toml"
    file.write_bytes(b"\xef\xbb\xbfwindow_tokens = 5000\n")
    assert load_settings(file=file, environment={}).settings.window_tokens == 5000


@pytest.mark.parametrize(
    ("spelled", "seconds"),
    [
        *[("5m", 300), ("90s", 90), ("1h", 3600), ("1h30m", 5400), ("250ms", 0.25), ("2d", 172800)],
        *[(45, 45), (1.5, 1.5), ("45", 45), (timedelta(minutes=2), 120), (" 5 M ", 300)],
    ],
)
def test_durations(spelled: Any, seconds: float) -> None:
    settings = load_settings(
        arguments={"pruning.ttl": spelled, "turn.deadline_seconds": spelled}, environment={}
    ).settings
    assert settings.pruning.ttl == timedelta(seconds=seconds)
    assert settings.turn.deadline_seconds == seconds


@given(st.integers(min_value=0, max_value=10**10))
def test_a_written_duration_is_read_back(milliseconds: int) -> None:
    shape = shapes_of(Pruning)["ttl"]
    duration = timedelta(milliseconds=milliseconds)
    assert shape.read(written(duration)) == duration


@pytest.mark.parametrize(
    ("text", "items"),
    [("read, exec*", ("read", "exec*")), ('["a,b"]', ("a,b",)), ("", ()), ("a,a", ("a",))],
)
def test_lists_in_variables(text: str, items: tuple[str, ...]) -> None:
    loaded = load_settings(environment={"RECOLLECT_PRUNING__TOOLS__DENY": text})
    assert loaded.settings.pruning.tools.deny == items


@pytest.mark.parametrize(
    ("path", "low", "high", "beyond"),
    [
        ("compaction.max_history_share", 0.1, 0.9, (0.09, 0.91)),
        ("pruning.soft_trim_ratio", 0, 1, (-0.01, 1.01)),
        ("trim.low_water_ratio", 0.01, 1, (0, 1.01)),
        ("session.reset.at_hour", 0, 23, (-1, 24)),
        ("compaction.reserve_tokens_floor", 0, 10**7, (-1,)),
        ("window_tokens", 1, 10**7, (0,)),
    ],
)
def test_ranges_hold_at_their_ends(
    path: str, low: float, high: float, beyond: tuple[float, ...]
) -> None:
    for inside in (low, high):
        load_settings(arguments={path: inside}, environment={})
    for outside in beyond:
        with pytest.raises(SettingsError, match=path):
            load_settings(arguments={path: outside}, environment={})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"head_chars 1500 .* max_chars 2000; lower"):
        load_settings(arguments={"pruning.soft_trim.max_chars": 2000}, environment={})
    weights = {"recall.hybrid": {"vector_weight": 0, "text_weight": 0}}
    with pytest.raises(SettingsError, match="both 0"):
        load_settings(arguments=weights, environment={})


def test_settings_made_by_hand_are_checked_and_take_no_aliases() -> None:
    with pytest.raises(SettingsError, match="at_hour"):
        Reset(at_hour=24)
    with pytest.raises(SettingsError, match=r"must be given as datetime\.timedelta"):
        Pruning(ttl="5m")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        Settings().window_tokens = 3  # type: ignore[misc]


def test_what_is_said_of_one_agent_goes_before_what_is_said_of_all(tmp_path: Path) -> None:
    text = """
window_tokens = 1000
[compaction]
reserve_tokens = 10
keep_recent_tokens = 20
[agents.night]
window_tokens = 2000
[agents.night.compaction]
reserve_tokens = 30
[agents.day.compaction]
reserve_tokens = 40
"""

    def of(agent: str | None) -> tuple[int | None, int, int]:
        settings = load_file(tmp_path, text, agent=agent).settings
        compaction = settings.compaction
        return settings.window_tokens, compaction.reserve_tokens, compaction.keep_recent_tokens

    assert of(None) == (1000, 10, 20)
    assert of("night") == (2000, 30, 20)
    assert of("day") == (1000, 40, 20)
    with pytest.raises(SettingsError, match="no agent 'noon'; it names day, night"):
        of("noon")
    with pytest.raises(SettingsError, match="not a setting"):
        load_file(tmp_path, "[agents.night]\nwidnow_tokens = 2")
    (tmp_path / "recollect.toml").write_text(text)
    named = load_settings(environment={"RECOLLECT_AGENT": "night"}).settings
    assert named.compaction.reserve_tokens == 30


def test_an_openclaw_file_is_taken_wherever_a_settings_file_is(tmp_path: Path) -> None:
    file = tmp_path / "openclaw.json"
    file.write_text(
        "{agents: {defaults: {contextTokens: 1001, compaction: {reserveTokens: 7}},"
        " list: [{id: 'night', contextTokens: 2002, name: 'N'}, {id: 'day'}]}}"
    )
    for loaded in (
        load_settings(environment={}, file=file),
        load_settings(environment={}, openclaw=file),
    ):
        settings = loaded.settings
        assert (settings.window_tokens, settings.compaction.reserve_tokens) == (1001, 7)
    by_variable = load_settings(environment={"RECOLLECT_CONFIG": str(file)}).settings
    assert by_variable.window_tokens == 1001
    night = load_settings(environment={}, file=file, agent="night").settings
    assert (night.window_tokens, night.compaction.reserve_tokens) == (2002, 7)
    with pytest.raises(SettingsError, match="no agent 'noon'"):
        load_settings(environment={}, file=file, agent="noon")
