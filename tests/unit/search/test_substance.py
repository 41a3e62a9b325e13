"""Substance: what only asks, and what says something too."""

from __future__ import annotations

import pytest

from recollect.core.search.question import only_asks


@pytest.mark.parametrize(
    "text",
    [
        "To which commit did we pin the search indexer?",
        "What is the ticket for the search indexer?",
        "what was the port??",
        "Thanks! And what is the port?",
        "What's in retry_policy.py at v1.2?",
        "And who paints it? When was that?",
        "  Did we ever pin it?  ",
        "Hi, do you remember the port?",
        "Can you tell me where the crane stands?",
        "起重机在哪里？",
        "我们把它钉在哪个提交上了吗？",
    ],
)
def test_it_only_asks(text: str) -> None:
    assert only_asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        "The ticket is OPS-311.",
        "What is the ticket for the search indexer",
        "The ticket is OPS-311. Is that right?",
        "Is that right? It is OPS-311.",
        "We pinned it to 8f3c2a1, didn't we?",
        "the crane is green?",
        "起重机在北码头。对吗？",
        "起重机在北码头，对吗？",
        "ok, thanks?",
        "What is wrong here?\n\nTraceback: OPS-311 was not found",
        "Why " + "so " * 400 + "long?",
    ],
)
def test_it_says_something_too(text: str) -> None:
    assert not only_asks(text)
