"""The progress bar of slow commands: on a terminal only, and not for quick work."""

import io
import sys

import pytest

from recollect.system import progress
from recollect.system.plain_text import size_text
from recollect.system.progress import ShownProgress


class Screen(io.StringIO):
    """What a terminal was sent."""

    tty = True

    def isatty(self) -> bool:
        return self.tty


def watched(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Not a fixture: pytest sets standard error again when a test begins."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.0)
    return screen


def test_a_bar_shows_how_far_the_work_is_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = watched(monkeypatch)
    with ShownProgress(amount=size_text) as bar:
        bar.show("model.onnx", 11 << 20, 22 << 20)
        drawn = screen.getvalue()
        assert "model.onnx  11.0 MB of 22.0 MB" in drawn
        assert drawn.count("#") == drawn.count(".", drawn.index("["))
        bar.show("messages", 1_200, None)
        assert "messages  1.2 KB" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K"), "the line is empty again"


@pytest.mark.parametrize("reason", ["no terminal", "json", "quick"])
def test_no_bar_is_drawn(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    screen = watched(monkeypatch)
    screen.tty = reason != "no terminal"
    if reason == "quick":
        monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 60.0)
    with ShownProgress(quiet=reason == "json") as bar:
        bar.show("indexing", 1, 2)
    assert screen.getvalue() == ""
