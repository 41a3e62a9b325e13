"""Hypothesis strategies for conversations, windows and resends.

Owns: what is drawn. A body is drawn as one header number and a list of event numbers and built
from them in plain Python, so that an example costs well under 10 ms and still shrinks: fewer
events, then simpler ones (0 is a short user text).
"""

from typing import Any

from hypothesis import strategies as st
from tests.conversations import write_anthropic, write_chat, write_pi, write_responses
from tests.conversations.resends import resend
from tests.conversations.script import (
    CODE_BITS,
    Turn,
    disturbed_turns,
    ending,
    flag,
    messy_turns,
    mixed,
    tidy_turns,
)

__all__ = [
    *("FORMAT_NAMES", "blocks_to_strings", "bodies", "bodies_with_system_inside", "body_from"),
    *("encoded", "move_cache_marks", "reorder_keys", "resend", "resends", "strings_to_blocks"),
    *("valid_bodies", "windows"),
]

Body = dict[str, Any]
_WRITERS = {
    "anthropic": write_anthropic.write,
    "openai-chat": write_chat.write,
    "openai-responses": write_responses.write,
    "pi": write_pi.write,
}
_FIELDS = {"openai-responses": "input"}
_CODE = st.integers(0, 2**CODE_BITS - 1)
_SMALLEST_WINDOW, _LARGEST_WINDOW = 4_000, 1_000_000
_EDGES = (4_000, 4_096, 8_000, 8_192, 16_384, 32_000, 32_768, 128_000, 200_000, 1_000_000)


def _codes(fewest: int, most: int) -> st.SearchStrategy[list[int]]:
    """Short lists first, for shrinking; an event makes one or two messages."""
    return st.one_of(
        st.lists(_CODE, min_size=fewest, max_size=min(8, most)),
        st.lists(_CODE, min_size=min(4, most), max_size=min(12, most)),
        st.lists(_CODE, min_size=min(10, most), max_size=min(26, most)),
    )


def _turns(header: int, codes: list[int]) -> list[Turn]:
    """Half the bodies are messy throughout, half tidy but for a few events."""
    turns = disturbed_turns(codes, header) if flag(header, 10, 2) else messy_turns(codes)
    if not flag(header, 13, 4) and turns[:1] and turns[0].role != "user":
        turns.insert(0, Turn("user", [("text", "hello")], 0))
    if flag(header, 15, 4):
        turns += ending(header)
    return turns


def body_from(
    format_name: str,
    header: int,
    codes: list[int],
    *,
    max_messages: int = 40,
    with_user_text: bool = True,
) -> Body:
    """The messy body that these numbers stand for."""
    spread = mixed(header)
    body = _WRITERS[format_name](_turns(spread, codes), spread, tidy=False)
    field = _FIELDS.get(format_name, "messages")
    messages = body[field]
    if isinstance(messages, list):
        messages = messages[-max_messages:] if flag(spread, 18, 2) else messages[:max_messages]
        if with_user_text and not any(_has_user_words(message) for message in messages):
            messages[-1:] = [{"role": "user", "content": "go on"}]
        body[field] = messages
    return body


def _has_user_words(message: Body) -> bool:
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [_words(block) for block in content or ()]
    return message.get("role") == "user" and any(
        text.strip() and "<recalled-context" not in text for text in texts
    )


def _words(block: Any) -> str:
    known = isinstance(block, dict) and block.get("type") in ("text", "input_text")
    return str(block["text"] or "") if known and "text" in block else ""


def bodies(
    format_name: str,
    *,
    max_messages: int = 40,
    with_user_text: bool = True,
) -> st.SearchStrategy[Body]:
    """Decoded request bodies, messy the way real clients are.

    With `with_user_text` the user says something somewhere; without it a body may hold no message
    at all, or none worth sending.
    """

    def build(header: int, codes: list[int]) -> Body:
        return body_from(
            format_name,
            header,
            codes,
            max_messages=max_messages,
            with_user_text=with_user_text,
        )

    fewest = 1 if with_user_text else 0
    return st.builds(build, _CODE, _codes(fewest, max_messages))


def valid_bodies(format_name: str, *, max_turns: int = 8) -> st.SearchStrategy[Body]:
    """Decoded request bodies that already keep every rule of the format."""

    def build(header: int, codes: list[int]) -> Body:
        return _WRITERS[format_name](tidy_turns(codes), mixed(header), tidy=True)

    return st.builds(build, _CODE, st.lists(_CODE, min_size=1, max_size=max_turns))


def bodies_with_system_inside() -> st.SearchStrategy[Body]:
    """Anthropic bodies, messy and valid, with system messages behind some of the user's.

    As Claude Code sends them under the beta that the body names: some empty, some with settings of
    their own.
    """

    def build(body: Body, bits: int) -> Body:
        messages: list[Body] = []
        for place, message in enumerate(body["messages"]):
            if message.get("role") == "system":
                continue
            messages.append(message)
            if message.get("role") == "user" and flag(mixed(bits + place), 3, 2):
                messages.append(_system_inside(mixed(bits + place), place))
        return {**body, "messages": messages}

    drawn = st.one_of(bodies("anthropic"), valid_bodies("anthropic", max_turns=30))
    return st.builds(build, drawn, _CODE)


def _system_inside(bits: int, place: int) -> Body:
    words = {"type": "text", "text": f"# Environment {place}\n" + "Branch: main. " * (bits % 40)}
    row: Body = {"role": "system", "content": [] if flag(bits, 7, 3) else [words]}
    return {**row, "output_config": {"effort": "medium"}} if flag(bits, 9, 2) else row


def windows() -> st.SearchStrategy[int]:
    """Windows from 4,000 to 1,000,000 tokens: even on a logarithmic scale, and the usual sizes."""
    span = _LARGEST_WINDOW / _SMALLEST_WINDOW
    even = st.integers(0, 1_000).map(lambda step: round(_SMALLEST_WINDOW * span ** (step / 1_000)))
    return st.one_of(st.sampled_from(_EDGES), even)


def resends(format_name: str, body: Body) -> st.SearchStrategy[Body]:
    """The same body again as a client might resend it."""
    return st.randoms(use_true_random=False).map(lambda rng: resend(format_name, body, rng))
