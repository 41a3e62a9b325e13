"""What is kept but not indexed, and what a channel puts before a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.core.rules.noise import (
    NoiseReason,
    is_noise,
    strip_channel_prefix,
    without_reminders,
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", NoiseReason.EMPTY),
        ("  \n", NoiseReason.EMPTY),
        ("NO_REPLY", NoiseReason.SILENT_REPLY),
        (" **HEARTBEAT_OK**\n", NoiseReason.SILENT_REPLY),
        ("Read HEARTBEAT.md, then reply HEARTBEAT_OK.", NoiseReason.HEARTBEAT_PROMPT),
        ('[Audio] {"file_key": "file_v3_00"}', NoiseReason.RAW_AUDIO),
        ("[Audio] UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQ==", NoiseReason.RAW_AUDIO),
        ("[Audio] data:audio/ogg;base64,T2dnUwACAAAAAAAAAAB", NoiseReason.RAW_AUDIO),
        ("[audio] <media:audio>", NoiseReason.RAW_AUDIO),
        ("[Audio]\n", NoiseReason.RAW_AUDIO),
        ("Feishu[main] DM from Anna: [Audio] " + "QUJDREVGRw" * 30_000, NoiseReason.RAW_AUDIO),
        ("[Queued messages while agent was busy]\n---\n1", NoiseReason.QUEUED_MESSAGES),
        ("ok", NoiseReason.SHORT),
        ("thanks", NoiseReason.SHORT),
        ("好的", NoiseReason.SHORT),
        ("네", NoiseReason.SHORT),
        ("[Fri 2026-03-06 09:12 UTC] ok", NoiseReason.SHORT),
    ],
)
def test_noise_is_named(text: str, reason: NoiseReason) -> None:
    assert is_noise(text) is reason


@pytest.mark.parametrize(
    "text",
    [
        "deploy it",
        "数据库在哪里",
        "明天开会",
        "部署它",
        "ありがとう",
        "어디에요",
        "Where is HEARTBEAT.md kept?",
        "What does NO_REPLY mean?",
        "[Audio] is broken on my laptop",
        "[Audio] Transcript: please book the table for eight on Friday evening",
        "[Audio] yes-please-book-it",
        "I saw [Queued messages] yesterday",
    ],
)
def test_what_says_something_is_not_noise(text: str) -> None:
    assert is_noise(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("System: [Fri 2026-03-06 09:12:01 GMT+8] restart it", "restart it"),
        ("[2026-03-06 09:12] restart it", "restart it"),
        ("[Feishu Fri 2026-03-06 09:12 UTC] restart it", "restart it"),
        ("Feishu[work] DM from ou_12: restart it", "restart it"),
        ("微信消息来自 小王：重启它", "重启它"),
        ('Sender (untrusted metadata): {"id": {"a": 1}}\n\nrestart it', "restart it"),
        (
            'Channel x (untrusted metadata):\n```json\n{"a": "}"}\n```\n[2026-03-06 9] restart it',
            "restart it",
        ),
        ("<system-reminder>\nbranch: main\n</system-reminder>\nrestart it", "restart it"),
        ("<environment_context>\n<cwd>/w</cwd>\n</environment_context>\nrestart it", "restart it"),
    ],
)
def test_channel_words_are_stripped(text: str, said: str) -> None:
    assert strip_channel_prefix(text) == said


@pytest.mark.parametrize(
    "text",
    [
        "restart it at [2026-03-06 09:12]",
        "2026-03-06 was a Friday",
        "[done] restart it",
        "Sender (untrusted metadata): no block",
        "Sender (untrusted metadata): {broken",
        "Slack is down",
        "<system-reminder> is what it writes",
    ],
)
def test_an_authors_own_words_stay(text: str) -> None:
    assert strip_channel_prefix(text) == text


def test_an_agents_reminders_are_nobodys_words() -> None:
    """Claude Code's stand before the user's words, behind them, and alone."""
    reminder = "<system-reminder>\nTests are red on the branch harbour.\n</system-reminder>"
    assert without_reminders(f"restart it\n{reminder}") == "restart it\n"
    assert without_reminders(f"say {reminder}") == f"say {reminder}"
    assert is_noise(f"{reminder}\n{reminder}") is NoiseReason.EMPTY
    assert not is_noise(f"{reminder}\nrestart the crane")
    place = "<environment_context>\n  <cwd>/work</cwd>\n</environment_context>"
    assert is_noise(place) is NoiseReason.EMPTY, "Codex's first message"
    assert without_reminders(f"{place}\n{reminder}\nrestart it") == "\n\nrestart it"
    command = (
        "<command-name>/compact</command-name>\n    <command-message>compact</command-message>"
    )
    assert is_noise(f"{command}\n    <command-args></command-args>") is NoiseReason.EMPTY
    assert not is_noise(f"{command}\n    <command-args>keep the ports</command-args>")
    printed = "<local-command-stdout>Compacted PreCompact completed</local-command-stdout>"
    assert is_noise(printed) is NoiseReason.EMPTY
    nested = reminder.replace("red", f"red\n{place}\n")
    assert without_reminders(f"{nested}\nrestart it") == "\nrestart it"


def test_of_claude_codes_own_summary_the_summary_is_left() -> None:
    text = (
        "This session is being continued from a previous conversation that ran out of context. "
        "The summary below covers the earlier portion.\n\nSummary:\nThe port is 5433.\n\n"
        "Continue the conversation from where it left off without asking the user anything."
    )
    assert without_reminders(text).strip() == "Summary:\nThe port is 5433."


@given(st.text())
def test_any_text_has_an_answer_and_loses_only_its_beginning(text: str) -> None:
    assert text.endswith(strip_channel_prefix(text))
    assert is_noise(text) in {None, *NoiseReason}
