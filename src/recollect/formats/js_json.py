"""JSON as JavaScript's `JSON.stringify` writes it, byte for byte, and JSONL read line by line.

Owns the spelling: no spaces, numbers as JavaScript prints them, lone surrogates escaped. Pure:
lines come in as bytes. A bad line never raises; it is left out and told, with its number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final

from recollect.errors import FormatError
from recollect.formats.json_spans import decode

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SAFE_INTEGER: Final = 2**53
_PLAIN_UP_TO: Final = 21  # ECMA-262, Number::toString: decimal notation up to 21 digits...
_PLAIN_FROM: Final = -6  # ...and down to six zeros behind the point
_BYTE_ORDER_MARK: Final = "\ufeff"


def stringify(value: Any) -> str:
    """The value as `JSON.stringify` spells it; encodes to UTF-8 whatever it holds."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_string(k)}:{stringify(v)}" for k, v in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([stringify(item) for item in value]) + "]"
    raise FormatError(f"a {type(value).__name__} has no JSON spelling")


def well_formed(text: str) -> str:
    """The text with lone surrogates replaced, as JavaScript does when it writes UTF-8."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _string(text: str) -> str:
    quoted: str = encode_basestring(text)
    if quoted.isascii():
        return quoted
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) < _SAFE_INTEGER:
        return str(value)
    try:
        double = float(value)
    except OverflowError:
        return "null"
    if not math.isfinite(double):
        return "null"
    if double == 0:
        return "0"
    sign = "-" if double < 0 else ""
    return sign + _decimal(Decimal(repr(abs(double))))


def _decimal(number: Decimal) -> str:
    """The shortest digits that name a double, placed as ECMA-262 places them."""
    _, places, exponent = number.as_tuple()
    assert isinstance(exponent, int), "neither infinite nor NaN"
    written = "".join(map(str, places))
    point = len(written) + exponent  # how many digits stand before the point
    digits = written.rstrip("0")
    if 0 < point <= _PLAIN_UP_TO:
        whole = digits[:point].ljust(point, "0")
        return f"{whole}.{digits[point:]}" if len(digits) > point else whole
    if _PLAIN_FROM < point <= 0:
        return "0." + "0" * -point + digits
    power = point - 1
    mantissa = digits if len(digits) == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{mantissa}e{'+' if power > 0 else '-'}{abs(power)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLine:
    """A line that holds a JSON object."""

    number: int
    line: str = field(repr=False)
    """As it stands in the file, with its line end where it has one."""
    value: dict[str, Any] = field(repr=False)


def object_lines(lines: Iterable[bytes], passed_over: list[str]) -> Iterator[ObjectLine]:
    """The objects of a JSONL file given line by line, line ends included."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            line = raw.decode()
            value = decode(line.removeprefix(_BYTE_ORDER_MARK).encode())
        except UnicodeDecodeError:
            passed_over.append(f"line {number}: not UTF-8 text")
            continue
        except FormatError:
            passed_over.append(f"line {number}: not JSON, or cut off")
            continue
        if not isinstance(value, dict):
            passed_over.append(f"line {number}: not a JSON object but {type(value).__name__}")
            continue
        yield ObjectLine(number=number, line=line, value=value)


def text_at(value: dict[str, Any], key: str) -> str | None:
    """A field that is a string, else None."""
    found = value.get(key)
    return found if isinstance(found, str) else None


def number_at(value: dict[str, Any], key: str) -> float | None:
    """A field that is a finite number, else None."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
