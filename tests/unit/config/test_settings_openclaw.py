"""An existing openclaw.json: every key of OpenClaw, what it sets here, and what is said."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sizes import at_size
from tests.unit.config.test_settings import another

from recollect.errors import SettingsError
from recollect.system.config import LoadedSettings, Settings, load_settings, setting_keys, value_of
from recollect.system.config.keys import snake_case
from recollect.system.config.openclaw import OPENCLAW_KEYS

DEFAULTS = "agents.defaults"
CONTEXT = "plugins.entries.memory-context"
LANCEDB = "plugins.entries.memory-lancedb"
SEARCH = f"{DEFAULTS}.memorySearch"

PATHS = {
    f"{block}.{name}".lstrip("."): to
    for block, names in OPENCLAW_KEYS.items()
    for name, to in names.items()
}
OFF = {"recall.enabled": False, "ingest.enabled": False}
# key in the file, its value, what it sets: those that are not simply taken over
CONVERTED: list[tuple[str, Any, dict[str, Any]]] = [
    (f"{DEFAULTS}.memoryContext.enabled", False, OFF),
    (f"{DEFAULTS}.memoryContext.embeddingModel", "gemini", {"recall.remote.provider": "gemini"}),
    (f"{DEFAULTS}.memoryContext.autoRecallMinScore", 0.9, {}),
    (f"{DEFAULTS}.memoryContext.crossSession", True, {"recall.scope": "space"}),
    (f"{DEFAULTS}.memoryContext.crossSession", False, {"recall.scope": "session"}),
    (f"{DEFAULTS}.contextPruning", "adaptive", {"pruning.mode": "adaptive"}),
    (f"{DEFAULTS}.contextPruning.ttl", "1h", {"pruning.ttl": 3600.0}),
    (f"{DEFAULTS}.contextPruning.ttl", "30", {"pruning.ttl": 1800.0}),
    (f"{DEFAULTS}.contextPruning.tools.allow", [], {}),  # there an empty list means all
    (f"{DEFAULTS}.memorySearch.enabled", False, {"recall.enabled": False}),
    (f"{DEFAULTS}.memorySearch.provider", "local", {"recall.embedder": "transformer"}),
    ("plugins.slots.memory", "none", OFF),
    (f"{CONTEXT}.enabled", False, OFF),
    (f"{CONTEXT}.config.autoRecallMinScore", 0.9, {}),
    (f"{CONTEXT}.config.evictionDays", 0, {}),  # there 0 means no limit
    (f"{CONTEXT}.config.crossSession", True, {"recall.scope": "space"}),
    (f"{CONTEXT}.config.knowledgeExtraction", False, {}),  # no model is named here anyway
    (f"{DEFAULTS}.memoryContext.knowledgeExtraction", False, {}),
    (f"{LANCEDB}.enabled", False, OFF),
    (f"{SEARCH}.query.hybrid.enabled", False, {"recall.hybrid.text_weight": 0.0}),
    (f"{SEARCH}.query.hybrid.enabled", True, {}),
    (f"{SEARCH}.experimental.sessionMemory", False, {"index.sources": ("memory",)}),
    (f"{SEARCH}.experimental.sessionMemory", True, {}),
]
PLAIN = [
    (path, typed, {to: value})
    for path, to in PATHS.items()
    for typed, _, value in [another(setting_keys()[to])]
    if path not in {path for path, _, _ in CONVERTED} - {f"{DEFAULTS}.contextPruning.tools.allow"}
]
KEYS = CONVERTED + PLAIN
WITHOUT_EFFECT = [
    f"{DEFAULTS}.compaction.model",
    f"{DEFAULTS}.memorySearch.query.hybrid.mmr",
    "memory.qmd",
    "memory.backend",
    f"{DEFAULTS}.blockStreamingDefault",
    f"{DEFAULTS}.heartbeat",
    f"{CONTEXT}.config.storagePath",
]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def document(path: str, value: Any) -> dict[str, Any]:
    """A file with this one key, and what its host needs for the key to count."""
    found: dict[str, Any] = {}
    inner = found
    *groups, last = path.split(".")
    for group in groups:
        inner = inner.setdefault(group, {})
    inner[last] = value
    for plugin in (CONTEXT, LANCEDB):
        if path.startswith(plugin):
            found["plugins"]["slots"] = {"memory": plugin.rpartition(".")[2]}
    return found


def load(content: dict[str, Any] | str, **arguments: Any) -> LoadedSettings:
    text = content if isinstance(content, str) else json.dumps(content)
    Path("openclaw.json").write_text(text, encoding="utf-8")
    return load_settings(arguments=arguments, environment={}, openclaw=Path("openclaw.json"))


def changed(loaded: LoadedSettings) -> dict[str, Any]:
    before, after = Settings(), loaded.settings
    pairs = ((path, value_of(before, path), value_of(after, path)) for path in setting_keys())
    return {path: new for path, old, new in pairs if new != old}


def spelled_in_snake_case(path: str) -> str:
    return path if path.startswith("plugins.") else snake_case(path)


@pytest.mark.parametrize("spelling", [str, spelled_in_snake_case])
@pytest.mark.parametrize(("path", "value", "sets"), KEYS)
def test_every_key_sets_what_it_should_and_nothing_else(
    path: str, value: Any, sets: dict[str, Any], spelling: Any
) -> None:
    loaded = load(document(spelling(path), value))
    assert changed(loaded) == sets
    for ours in sets:
        assert loaded.sources[ours].kind == "openclaw"
        assert loaded.sources[ours].name == "openclaw.json"


def test_keys_that_set_nothing_are_named_in_one_notice_without_their_values() -> None:
    content: dict[str, Any] = {}
    for path in WITHOUT_EFFECT:
        inner = content
        *groups, last = path.split(".")
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = "hush-hush"
    content["plugins"]["slots"] = {"memory": "memory-context"}
    loaded = load(content)
    (said,) = [notice.message for notice in loaded.notices if notice.without_effect]
    assert changed(loaded) == {}
    assert [path for path in WITHOUT_EFFECT if path not in said] == []
    assert "hush" not in repr(loaded)


@pytest.mark.parametrize("path", sorted({path for path, _, _ in KEYS if "MinScore" not in path}))
def test_a_value_that_does_not_fit_is_refused_by_name(path: str) -> None:
    with pytest.raises(SettingsError, match=r"openclaw\.json") as caught:
        load(document(path, {"not": "this"} if not path.endswith("Pruning") else ["not this"]))
    assert path in str(caught.value)


def test_an_imported_score_counts_only_under_the_openclaw_preset() -> None:
    content = document(f"{DEFAULTS}.memoryContext.autoRecallMinScore", 0.6)
    ours, theirs = load(content), load(content, preset="openclaw")
    assert ours.settings.recall.min_score is None
    assert "autoRecallMinScore" in ours.notices[0].message
    assert theirs.settings.recall.min_score == 0.6


def test_nothing_remote_is_switched_on_by_an_import() -> None:
    loaded = load(document(f"{DEFAULTS}.memorySearch.provider", "openai"))
    assert loaded.settings.recall.embedder == "auto"
    assert any("nothing is sent" in notice.message for notice in loaded.notices)


@pytest.mark.parametrize(
    ("plugins", "is_on"),
    [
        ({"entries": {"memory-context": {}}, "slots": {"memory": "memory-context"}}, True),
        ({"entries": {"memory-context": {}}}, False),
        ({"slots": {"memory": "memory-context"}}, False),
        ({"slots": {"memory": "memory-core"}}, True),
        ({"slots": {"memory": "none"}}, False),
        ({}, True),
    ],
)
def test_a_memory_plugin_needs_its_entry_and_the_slot(plugins: dict[str, Any], is_on: bool) -> None:
    loaded = load({"plugins": plugins})
    settings = loaded.settings
    assert (settings.recall.enabled, settings.ingest.enabled) == (is_on, is_on)
    assert ["memory is off" in notice.message for notice in loaded.notices] == [True] * (not is_on)


def test_the_settings_of_an_unused_plugin_are_not_used() -> None:
    entries = {"memory-context": {"config": {"hardCapTokens": 5}}}
    loaded = load({"plugins": {"entries": entries, "slots": {"memory": "memory-core"}}})
    assert changed(loaded) == {"recall.enabled": False, "ingest.enabled": False}


SWITCHED_OFF: list[tuple[dict[str, Any], bool, bool]] = [
    # what `plugins` says, whether messages are recalled, whether they are stored
    ({"entries": {"memory-lancedb": {"config": {"autoCapture": False}}}}, True, False),
    ({"entries": {"memory-lancedb": {"config": {"autoRecall": False}}}}, False, True),
    ({"entries": {"memory-lancedb": {"config": {"auto_capture": False}}}}, True, False),
    (
        {"entries": {"memory-lancedb": {"config": {"autoCapture": False, "autoRecall": False}}}},
        False,
        False,
    ),
    ({"entries": {"memory-lancedb": {"config": {"autoCapture": True}}}}, True, True),
    ({"entries": {"memory-lancedb": {}}}, True, True),
    ({"entries": {"memory-lancedb": {"enabled": False}}}, False, False),
    ({"entries": {}}, False, False),
    ({}, False, False),
    ({"enabled": False, "entries": {"memory-lancedb": {}}}, False, False),
    ({"deny": ["memory-lancedb"], "entries": {"memory-lancedb": {}}}, False, False),
    ({"deny": ["telegram"], "entries": {"memory-lancedb": {}}}, True, True),
    (
        {"slots": {"memory": "memory-mine"}, "entries": {"memory-mine": {"enabled": False}}},
        False,
        False,
    ),
    (
        {
            "slots": {"memory": "memory-mine"},
            "entries": {"memory-mine": {"config": {"autoCapture": False}}},
        },
        True,
        False,
    ),
    (
        {
            "slots": {"memory": "memory-core"},
            "entries": {"memory-lancedb": {"config": {"autoCapture": False}}},
        },
        True,
        True,
    ),
    (
        {
            "entries": {
                "memory-lancedb": {"config": {"autoCapture": False}},
                "memory-context": {"config": {"autoCapture": True}},
            }
        },
        True,
        False,
    ),
]


@pytest.mark.parametrize(("plugins", "recalls", "stores"), SWITCHED_OFF)
def test_switches_of_the_plugin_in_the_memory_slot_are_honored(
    plugins: dict[str, Any], recalls: bool, stores: bool
) -> None:
    settings = load({"plugins": {"slots": {"memory": "memory-lancedb"}, **plugins}}).settings
    assert (settings.recall.enabled, settings.ingest.enabled) == (recalls, stores)


@pytest.mark.parametrize("key", ["autoCapture", "autoRecall", "enabled"])
def test_a_switch_of_a_plugin_that_is_no_boolean_is_refused(key: str) -> None:
    entry = {"enabled": "no"} if key == "enabled" else {"config": {key: "no"}}
    plugins = {"slots": {"memory": "memory-lancedb"}, "entries": {"memory-lancedb": entry}}
    with pytest.raises(SettingsError, match=rf"memory-lancedb\..*{key} must be true or false"):
        load({"plugins": plugins})


def test_if_switches_disagree_off_wins() -> None:
    content = document(f"{CONTEXT}.config.autoRecall", False)
    content["agents"] = {"defaults": {"memoryContext": {"enabled": True}}}
    assert changed(load(content)) == {"recall.enabled": False}


def test_two_keys_that_disagree_are_an_error_and_two_that_agree_are_not() -> None:
    def both(root: int, defaults: int) -> dict[str, Any]:
        inner = {"defaults": {"compaction": {"reserveTokens": defaults}}}
        return {"compaction": {"reserveTokens": root}, "agents": inner}

    assert changed(load(both(9000, 9000))) == {"compaction.reserve_tokens": 9000}
    with pytest.raises(SettingsError, match=r"both set compaction\.reserve_tokens"):
        load(both(9000, 8000))
    with pytest.raises(SettingsError, match="are one key"):
        load({"compaction": {"reserveTokens": 9000, "reserve_tokens": 9000}})


def test_other_agents_and_included_files_are_named_as_without_effect() -> None:
    agents = [{"id": "main", "memorySearch": {"x": 1}}, {"id": "plain", "workspace": "~"}, 7]
    loaded = load({"agents": {"list": agents}, "$include": "./base.json5"})
    assert changed(loaded) == {}
    (notice,) = loaded.notices
    assert notice.message.endswith(": agents.list[main] (see RECOLLECT_AGENT), $include")


AGENTS = {
    "defaults": {
        "compaction": {"mode": "safeguard", "reserveTokens": 9000},
        "contextTokens": 90_000,
    },
    "list": [
        {"id": "main"},
        {
            "id": "notes",
            "compaction": {"reserve_tokens": 5000},
            "contextTokens": 30_000,
            "memoryContext": {"enabled": False},
            "contextPruning": "adaptive",
            "model": "any",
        },
    ],
}


@pytest.mark.parametrize(
    ("agent", "sets"),
    [
        (None, {"compaction.reserve_tokens": 9000, "window_tokens": 90_000}),
        ("main", {"compaction.reserve_tokens": 9000, "window_tokens": 90_000}),
        (
            "notes",
            {
                "compaction.reserve_tokens": 5000,
                "window_tokens": 30_000,
                "pruning.mode": "adaptive",
                **OFF,
            },
        ),
    ],
)
def test_an_agents_own_keys_override_the_defaults(agent: str | None, sets: dict[str, Any]) -> None:
    Path("openclaw.json").write_text(json.dumps({"agents": AGENTS}), encoding="utf-8")
    environment = {"RECOLLECT_AGENT": agent} if agent else {}
    loaded = load_settings(environment=environment, openclaw=Path("openclaw.json"), folder=None)
    assert changed(loaded) == sets
    assert any("see RECOLLECT_AGENT" in notice.message for notice in loaded.notices) == (not agent)


def test_an_agent_that_the_file_does_not_name_is_refused() -> None:
    Path("openclaw.json").write_text(json.dumps({"agents": AGENTS}), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"no agent 'nodes'; .* main, notes"):
        load_settings(environment={"RECOLLECT_AGENT": "nodes"}, openclaw=Path("openclaw.json"))


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        (f"{DEFAULTS}.memoryContext.hardCapToken", "hardCapTokens"),
        (f"{DEFAULTS}.memoryContext.Enabeld", "enabled"),
        (f"{DEFAULTS}.memoryContext.knowledge_extracton", "knowledgeExtraction"),
        (f"{DEFAULTS}.memoryContext.zzz", ""),
        (f"{DEFAULTS}.contextPruning.keepLastAssistant", "keepLastAssistants"),
        (f"{DEFAULTS}.contextPruning.softTrim.headChar", "softTrim.headChars"),
        (f"{DEFAULTS}.contextPruning.tools.denied", "tools.deny"),
    ],
)
def test_an_unknown_key_of_a_strict_block_is_refused_with_the_key_that_was_meant(
    path: str, meant: str
) -> None:
    with pytest.raises(SettingsError, match=rf"did you mean {meant}") as caught:
        load(document(path, 5))
    assert path in str(caught.value)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("off", "other", "sets"),
    [
        (
            "query.hybrid.enabled",
            ("query.hybrid.textWeight", 0.4),
            {"recall.hybrid.text_weight": 0.0},
        ),
        (
            "experimental.sessionMemory",
            ("sources", ["memory", "sessions"]),
            {"index.sources": ("memory",)},
        ),
    ],
)
def test_a_switch_that_is_off_overrides_other_keys(
    off: str, other: tuple[str, Any], sets: dict[str, Any], first: bool
) -> None:
    keys = [(off, False), other] if first else [other, (off, False)]
    search: dict[str, Any] = {}
    for path, value in keys:
        inner = search
        *groups, last = path.split(".")
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    assert changed(load({"agents": {"defaults": {"memorySearch": search}}})) == sets


def test_switched_off_extraction_names_no_model() -> None:
    loaded = load(document(f"{DEFAULTS}.memoryContext.knowledgeExtraction", False))
    assert loaded.sources["models.extraction"].kind == "openclaw"


def test_broken_files_say_where() -> None:
    with pytest.raises(SettingsError, match=r"openclaw\.json is not valid JSON5: line 2"):
        load("{a: 1,\n b: }")
    with pytest.raises(SettingsError, match="one object"):
        load("[1, 2]")
    with pytest.raises(SettingsError, match="not valid JSON5"):
        load("")
    with pytest.raises(SettingsError, match="cannot read"):
        load_settings(environment={}, openclaw=Path("absent.json"))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "enabled", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(
    max_examples=at_size(ci=50, full=300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=st.sampled_from(sorted({path for path, _, _ in KEYS})), value=ANYTHING)
def test_whatever_a_file_holds_it_is_read_or_refused_by_name(path: str, value: Any) -> None:
    try:
        loaded = load(document(path, value))
    except SettingsError as problem:
        # values that contradict each other are named by their group
        assert path in str(problem) or "pruning.soft_trim: " in str(problem)
    else:
        assert all(setting_keys()[key] for key in changed(loaded))
