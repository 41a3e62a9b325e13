"""An existing openclaw.json: every key of OpenClaw, what it sets here, and what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sizes import at_size

from recollect.core.search.calibrate import THRESHOLD
from recollect.errors import SettingsError
from recollect.system.config import LoadedSettings, Settings, known_keys, load_settings, value_of
from recollect.system.config.keys import snake_case
from recollect.system.config.openclaw import routes

DEFAULTS = "agents.defaults"
CONTEXT = "plugins.entries.memory-context"

# (key in the file, its value, what it sets): every key of settings.md's first column
KEYS: list[tuple[str, Any, dict[str, Any]]] = [
    (
        f"{DEFAULTS}.memoryContext.enabled",
        False,
        {"recall.enabled": False, "ingest.enabled": False},
    ),
    (f"{DEFAULTS}.memoryContext.hardCapTokens", 3000, {"recall.hard_cap_tokens": 3000}),
    (f"{DEFAULTS}.memoryContext.embeddingModel", "hash", {"recall.embedder": "hash"}),
    (f"{DEFAULTS}.memoryContext.embeddingModel", "transformer", {"recall.embedder": "transformer"}),
    (f"{DEFAULTS}.memoryContext.embeddingModel", "gemini", {"recall.remote.provider": "gemini"}),
    (f"{DEFAULTS}.memoryContext.redaction", False, {"redaction.enabled": False}),
    (f"{DEFAULTS}.memoryContext.autoRecallMinScore", 0.9, {"recall.min_score": 0.257}),
    (f"{DEFAULTS}.memoryContext.maxSegments", 30000, {"index.max_segments": 30000}),
    (f"{DEFAULTS}.memoryContext.evictionDays", 90, {"index.eviction_days": 90}),
    (f"{DEFAULTS}.memoryContext.crossSession", True, {"recall.scope": "space"}),
    (f"{DEFAULTS}.memoryContext.crossSession", False, {"recall.scope": "session"}),
    (f"{DEFAULTS}.compaction.enabled", False, {"compaction.enabled": False}),
    (f"{DEFAULTS}.compaction.mode", "default", {"compaction.mode": "default"}),
    (f"{DEFAULTS}.compaction.reserveTokens", 9000, {"compaction.reserve_tokens": 9000}),
    (
        f"{DEFAULTS}.compaction.reserveTokensFloor",
        24000,
        {"compaction.reserve_tokens_floor": 24000},
    ),
    (f"{DEFAULTS}.compaction.keepRecentTokens", 9000, {"compaction.keep_recent_tokens": 9000}),
    (f"{DEFAULTS}.compaction.maxHistoryShare", 0.6, {"compaction.max_history_share": 0.6}),
    (f"{DEFAULTS}.compaction.memoryFlush.enabled", False, {"compaction.flush.enabled": False}),
    (
        f"{DEFAULTS}.compaction.memoryFlush.softThresholdTokens",
        8000,
        {"compaction.flush.soft_threshold_tokens": 8000},
    ),
    (f"{DEFAULTS}.compaction.memoryFlush.prompt", "Notes!", {"compaction.flush.prompt": "Notes!"}),
    (
        f"{DEFAULTS}.compaction.memoryFlush.systemPrompt",
        "Now!",
        {"compaction.flush.system_prompt": "Now!"},
    ),
    ("compaction.enabled", False, {"compaction.enabled": False}),
    ("compaction.reserveTokens", 9000, {"compaction.reserve_tokens": 9000}),
    ("compaction.keepRecentTokens", 9000, {"compaction.keep_recent_tokens": 9000}),
    (f"{DEFAULTS}.contextPruning", "adaptive", {"pruning.mode": "adaptive"}),
    (f"{DEFAULTS}.contextPruning", "aggressive", {"pruning.mode": "aggressive"}),
    (f"{DEFAULTS}.contextPruning.mode", "off", {"pruning.mode": "off"}),
    (f"{DEFAULTS}.contextPruning.ttl", "1h", {"pruning.ttl": 3600.0}),
    (f"{DEFAULTS}.contextPruning.ttl", "30", {"pruning.ttl": 1800.0}),
    (f"{DEFAULTS}.contextPruning.keepLastAssistants", 5, {"pruning.keep_last_assistants": 5}),
    (f"{DEFAULTS}.contextPruning.softTrimRatio", 0.25, {"pruning.soft_trim_ratio": 0.25}),
    (f"{DEFAULTS}.contextPruning.hardClearRatio", 0.45, {"pruning.hard_clear_ratio": 0.45}),
    (
        f"{DEFAULTS}.contextPruning.minPrunableToolChars",
        30000,
        {"pruning.min_prunable_tool_chars": 30000},
    ),
    (f"{DEFAULTS}.contextPruning.softTrim.maxChars", 6000, {"pruning.soft_trim.max_chars": 6000}),
    (f"{DEFAULTS}.contextPruning.softTrim.headChars", 900, {"pruning.soft_trim.head_chars": 900}),
    (f"{DEFAULTS}.contextPruning.softTrim.tailChars", 900, {"pruning.soft_trim.tail_chars": 900}),
    (f"{DEFAULTS}.contextPruning.hardClear.enabled", False, {"pruning.hard_clear.enabled": False}),
    (
        f"{DEFAULTS}.contextPruning.hardClear.placeholder",
        "[gone]",
        {"pruning.hard_clear.placeholder": "[gone]"},
    ),
    (f"{DEFAULTS}.contextPruning.tools.allow", ["exec"], {"pruning.tools.allow": ("exec",)}),
    (f"{DEFAULTS}.contextPruning.tools.allow", [], {}),  # there an empty list means all
    (f"{DEFAULTS}.contextPruning.tools.deny", ["*image*"], {"pruning.tools.deny": ("*image*",)}),
    (f"{DEFAULTS}.contextTokens", 128000, {"window_tokens": 128000}),
    (f"{DEFAULTS}.bootstrapMaxChars", 9000, {"workspace.max_chars": 9000}),
    (f"{DEFAULTS}.skipBootstrap", False, {"workspace.skip_bootstrap": False}),
    (f"{DEFAULTS}.memorySearch.enabled", False, {"recall.enabled": False}),
    (f"{DEFAULTS}.memorySearch.provider", "voyage", {"recall.remote.provider": "voyage"}),
    (f"{DEFAULTS}.memorySearch.provider", "local", {"recall.embedder": "transformer"}),
    (f"{DEFAULTS}.memorySearch.model", "embed-3", {"recall.remote.model": "embed-3"}),
    (f"{DEFAULTS}.memorySearch.query.maxResults", 6, {"recall.max_results": 6}),
    (
        f"{DEFAULTS}.memorySearch.query.hybrid.vectorWeight",
        0.7,
        {"recall.hybrid.vector_weight": 0.7},
    ),
    (f"{DEFAULTS}.memorySearch.query.hybrid.textWeight", 0.3, {"recall.hybrid.text_weight": 0.3}),
    (f"{DEFAULTS}.memorySearch.cache.enabled", False, {"embedding_cache.enabled": False}),
    (f"{DEFAULTS}.memorySearch.sources", ["memory"], {"index.sources": ("memory",)}),
    (f"{DEFAULTS}.memorySearch.extraPaths", ["~/docs"], {"index.extra_paths": ("~/docs",)}),
    ("memory.citations", "off", {"recall.citations": "off"}),
    ("session.reset.mode", "daily", {"session.reset.mode": "daily"}),
    ("session.reset.idleMinutes", 480, {"session.reset.idle_minutes": 480}),
    ("plugins.slots.memory", "none", {"recall.enabled": False, "ingest.enabled": False}),
    (f"{CONTEXT}.enabled", False, {"recall.enabled": False, "ingest.enabled": False}),
    (f"{CONTEXT}.config.autoRecall", False, {"recall.enabled": False}),
    (f"{CONTEXT}.config.autoCapture", False, {"ingest.enabled": False}),
    (f"{CONTEXT}.config.autoRecallMaxTokens", 9000, {"recall.hard_cap_tokens": 9000}),
    (f"{CONTEXT}.config.hardCapTokens", 3000, {"recall.hard_cap_tokens": 3000}),
    (f"{CONTEXT}.config.embeddingModel", "hash", {"recall.embedder": "hash"}),
    (f"{CONTEXT}.config.redaction", False, {"redaction.enabled": False}),
    (f"{CONTEXT}.config.autoRecallMinScore", 0.35, {"recall.min_score": 0.117}),
    (f"{CONTEXT}.config.maxSegments", 30000, {"index.max_segments": 30000}),
    (f"{CONTEXT}.config.evictionDays", 90, {"index.eviction_days": 90}),
    (f"{CONTEXT}.config.evictionDays", 0, {}),  # there 0 means no limit
    (f"{CONTEXT}.config.crossSession", True, {"recall.scope": "space"}),
    (f"{CONTEXT}.config.search.vectorWeight", 0.6, {"recall.hybrid.vector_weight": 0.6}),
    (f"{CONTEXT}.config.search.bm25Weight", 0.4, {"recall.hybrid.text_weight": 0.4}),
    (f"{CONTEXT}.config.search.timeDecay", 0.99, {"recall.decay_per_day": 0.99}),
]
WITHOUT_EFFECT = [
    f"{DEFAULTS}.compaction.model",
    f"{DEFAULTS}.memorySearch.query.hybrid.mmr",
    f"{DEFAULTS}.memoryContext.hardCapToken",
    "memory.qmd",
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
    if path.startswith(CONTEXT):
        found["plugins"]["slots"] = {"memory": "memory-context"}
    return found


def load(content: dict[str, Any] | str, **arguments: Any) -> LoadedSettings:
    text = content if isinstance(content, str) else json.dumps(content)
    Path("openclaw.json").write_text(text, encoding="utf-8")
    return load_settings(arguments=arguments, environment={}, openclaw=Path("openclaw.json"))


def changed(loaded: LoadedSettings) -> dict[str, Any]:
    before, after = Settings(), loaded.settings
    pairs = ((path, value_of(before, path), value_of(after, path)) for path in known_keys())
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


def test_every_route_is_tested_above() -> None:
    bare = {snake_case(f"{DEFAULTS}.contextPruning")}
    tested = {snake_case(path) for path, _, _ in KEYS} - bare
    assert tested == routes().keys()


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
    assert all(path in said for path in WITHOUT_EFFECT)
    assert "hush" not in repr(loaded)


@pytest.mark.parametrize(("path", "value", "sets"), KEYS)
def test_a_value_that_does_not_fit_is_refused_by_name(
    path: str, value: Any, sets: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError, match=r"openclaw\.json") as caught:
        load(document(path, {"not": "this"} if not path.endswith("Pruning") else ["not this"]))
    assert path in str(caught.value)


def test_the_imported_score_applies_as_it_is_under_the_openclaw_preset() -> None:
    content = document(f"{DEFAULTS}.memoryContext.autoRecallMinScore", 0.6)
    mapped, kept = load(content), load(content, preset="openclaw")
    assert mapped.settings.recall.min_score is None
    assert kept.settings.recall.min_score == 0.6
    key = f"{DEFAULTS}.memoryContext.autoRecallMinScore"
    assert "mapped" in next(one.message for one in mapped.notices if one.key == key)
    assert "OpenClaw's score" in next(one.message for one in kept.notices if one.key == key)


def test_an_imported_score_is_no_stricter_than_the_default_it_stands_for() -> None:
    key = f"{DEFAULTS}.memoryContext.autoRecallMinScore"

    def effective(theirs: float) -> float:
        ours = load(document(key, theirs)).settings.recall.min_score
        return THRESHOLD if ours is None else ours

    given = [at / 100 for at in range(101)]
    mapped = [effective(theirs) for theirs in given]
    assert mapped == sorted(mapped)
    assert max(mapped[:71]) == THRESHOLD == effective(0.7) == effective(0.6)
    assert mapped[0] == 0
    assert THRESHOLD < mapped[-1] < 1


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
        ({}, True),
    ],
)
def test_a_memory_plugin_needs_its_entry_and_the_slot(plugins: dict[str, Any], is_on: bool) -> None:
    settings = load({"plugins": plugins}).settings
    assert (settings.recall.enabled, settings.ingest.enabled) == (is_on, is_on)


def test_the_settings_of_an_unused_plugin_are_not_used_and_it_says_so() -> None:
    entries = {"memory-context": {"config": {"hardCapTokens": 5}}}
    loaded = load({"plugins": {"entries": entries, "slots": {"memory": "memory-core"}}})
    assert changed(loaded) == {"recall.enabled": False, "ingest.enabled": False}
    assert [notice.key for notice in loaded.notices] == [CONTEXT]


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
    twice = {
        "memory": {"citations": "on"},
        "session": {"reset": {"idleMinutes": 3, "idle_minutes": 3}},
    }
    with pytest.raises(SettingsError, match="are one key"):
        load(twice)


def test_other_agents_and_included_files_are_named_as_without_effect() -> None:
    agents = {
        "defaults": {"models": {"a/b": {"params": {"cacheControlTtl": "1h"}}, "c": {}}},
        "list": [
            {"id": "main", "memorySearch": {"anything": 1}, "heartbeat": {}},
            {"id": "plain", "workspace": "~"},
        ],
    }
    loaded = load({"agents": agents, "$include": "./base.json5"})
    assert changed(loaded) == {}
    (notice,) = loaded.notices
    assert "2 keys: $include, agents.list[main]" in notice.message


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
    max_examples=at_size(ci=100, full=300),
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
        assert all(known_keys()[key] for key in changed(loaded))
