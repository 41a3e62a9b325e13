"""Matches regular expressions that come from outside: from an argument, a form or a program.

RE2 matches them in time that grows with the text and never exponentially, and without Python's
lock. Python's syntax is kept where RE2 has an equivalent. Size, matches and time are limited."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from recollect.errors import SettingsError

MAX_PATTERN_CHARS: Final = 1_000
"""Longer patterns are lists of texts, which several short patterns express better."""
MAX_INSTRUCTIONS: Final = 5_000
"""Limit of a compiled pattern. In the worst case, RE2 takes 10 ns per byte and instruction."""
MAX_MATCHES: Final = 10_000
"""Limit per text. A pattern such as `.` would make a large text 25 times larger."""
MAX_SECONDS: Final = 10.0
"""Processor time per text. `a.*b|a` searches the rest of the text for each of its matches."""
WINDOW_COST: Final = 100_000_000
"""Bytes times instructions of one call of RE2, which cannot be interrupted: at most one second."""
MIN_WINDOW_BYTES: Final = 32_768  # a match of up to half of it is found whole
_HINTS: Final = {
    r"\(\?<?[=!]": "look-ahead and look-behind are not supported: match the text around it as well",
    r"\\[1-9]|\(\?(P=|\()": "references to groups are not supported: write the repeated text out",
    r"\(\?>|[*+?}]\+": "possessive repeats are not supported: write a+ for a++ or (?>a+)",
    r"\{\d*,?\d{4}": "a repeat may have at most 1,000 rounds: write a+ or a{1000}",
    r"\\[Nh]|\(\?\w*[aLux#]": "flags a, L, u and x, comments and \\N{…} are not supported",
    "": "check its brackets, ranges, escapes and repeats (RE2 syntax)",
}
_CLASSES: Final = {
    # The exact class of Unicode takes 30 times as many instructions as these ranges, which include
    # marks and some punctuation.
    "w": r"\w\x{aa}\x{b5}\x{ba}\x{c0}-\x{1fff}\x{2c00}-\x{2fff}\x{3040}-\x{d7ff}\x{f900}-\x{fdff}"
    r"\x{fe70}-\x{fefc}\x{ff10}-\x{ff19}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{ff66}-\x{ffdc}"
    r"\x{10000}-\x{1efff}\x{20000}-\x{3ffff}",
    "d": r"\p{Nd}",
    "s": r"\s\v\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}",  # noqa: E501
}
_SYNTAX: Final = re.compile(
    r"\\(?:u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<escaped>.))"
    r"|(?P<opening>\[\^?\]?)|(?P<closing>\])|\{,(?P<most>\d+)\}|(?P<end>\$)",
    re.DOTALL,
)
_MULTILINE: Final = re.compile(r"\(\?[a-zA-Z]*m")


class TextPattern:
    """A regular expression from outside."""

    __slots__ = ("_name", "_regex", "_window_bytes")

    def __init__(self, source: str, name: str = "the pattern") -> None:
        """Compile the pattern. Raise SettingsError, which calls the pattern `name` and does not
        quote it, because it may contain a secret."""
        self._name = name
        if len(source) > MAX_PATTERN_CHARS:
            raise self._error(f"may have at most {MAX_PATTERN_CHARS:,} characters: split it")
        self._regex = self._compile(source)
        instructions = max(self._regex.programsize, self._regex.reverseprogramsize)
        if instructions > MAX_INSTRUCTIONS:
            raise self._error("is too large: write fewer or shorter repeats with limits")
        self._window_bytes = max(MIN_WINDOW_BYTES, WINDOW_COST // instructions)
        if self._regex.search(b"") is not None:
            raise self._error(
                "matches the empty text, so it would match everywhere: make it match only the text "
                "to remove"
            )

    def occurs_in(self, text: str) -> bool:
        return next(self._byte_spans(_encode(text)), None) is not None

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each match, in order. Raise SettingsError if this takes too
        long, or if there are too many matches."""
        raw = _encode(text)
        byte_offset = offset = 0
        for count, (first_byte, end_byte) in enumerate(self._byte_spans(raw)):
            if count == MAX_MATCHES:
                raise self._error(
                    f"matches more than {MAX_MATCHES:,} times in one text: make it match whole "
                    "values, such as a+ instead of a"
                )
            start = offset + len(raw[byte_offset:first_byte].decode())
            offset = start + len(raw[first_byte:end_byte].decode())
            byte_offset = end_byte
            yield start, offset

    def _byte_spans(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """Search the text in windows that overlap by half. A match that begins in the second half
        belongs to the next window, so only one of more than half a window may be cut."""
        until, searched_until = time.thread_time() + MAX_SECONDS, 0
        half = self._window_bytes // 2
        for start in range(0, max(1, len(raw) - half), half):
            end = min(len(raw), start + self._window_bytes)
            matches = self._regex.finditer(raw, max(start, searched_until), end)
            while True:
                match = next(matches, None)
                if time.thread_time() > until:
                    raise self._error(
                        f"takes more than {MAX_SECONDS:g} s for one text: leave out parts such as "
                        ".* that match long texts"
                    )
                if match is None or (match.start() >= start + half and end < len(raw)):
                    break
                if match.end() > match.start():
                    searched_until = match.end()
                    yield match.span()

    def _compile(self, source: str) -> Any:
        import re2  # only if there is a pattern, because a hook must start fast

        options = re2.Options()
        options.never_capture = True
        options.log_errors = False  # they would be written to the standard error stream
        try:
            regex = re2.compile(self._to_re2(source), options)
        except (re2.error, UnicodeEncodeError):
            hint = next(hint for syntax, hint in _HINTS.items() if re.search(syntax, source))
            raise self._error(f"is not a valid regular expression: {hint}") from None
        re2.purge()  # its cache would keep up to 1 GB
        return regex

    def _to_re2(self, source: str) -> str:
        """Translate what Python writes in another way, and classes that RE2 limits to ASCII."""
        in_class, ends_line = False, _MULTILINE.search(source) is not None

        def translate(token: re.Match[str]) -> str:
            nonlocal in_class
            escape, code = token["escaped"], token["short"] or token["long"]
            if code:
                return f"\\x{{{code}}}"
            if token["opening"] and in_class:  # there, [ is a character, and ] closes the class
                in_class = not token[0].endswith("]")
                return f"\\{token[0]}"
            if token["opening"] or token["closing"]:
                in_class = token["closing"] is None
                return token[0]
            if escape == "C":
                raise self._error(r"has \C, which matches a part of a character: write . instead")
            if escape in ("b", "B") and not in_class and not source.isascii():
                raise self._error(
                    rf"has \{escape}, which knows only ASCII letters: leave it out, or write \W"
                )
            if in_class and escape == "W":
                raise self._error(r"has \W between brackets: write \P{L} there, or (?:[…]|\W)")
            if escape and (chars := _CLASSES.get(escape if in_class else escape.lower())):
                return chars if in_class else f"[{'^' * escape.isupper()}{chars}]"
            if escape or in_class or (token["end"] and ends_line):
                return r"\z" if escape == "Z" else token[0]
            return r"(?:\n?\z)" if token["end"] else f"{{0,{token['most']}}}"

        return _SYNTAX.sub(translate, source)

    def _error(self, problem: str) -> SettingsError:
        return SettingsError(f"{self._name} {problem}")


def compile_patterns(sources: Sequence[str]) -> tuple[TextPattern, ...]:
    """Compile regular expressions from outside. Raise SettingsError if one cannot be used."""
    return tuple(TextPattern(text, f"pattern {number}") for number, text in enumerate(sources, 1))


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")  # a lone surrogate counts as a question mark
