"""Personal data that redaction masks only when asked: e-mail, phone and payment card numbers.

Owns the three patterns and the checks that keep them from striking ordinary numbers (Luhn's
checksum, a plausible count of digits). Never runs unless `redact(..., pii=True)`. Always
linear.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recollect.rules.secret_contexts import Found

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}\Z")
_DOMAIN = re.compile(r"@[A-Za-z0-9](?:[A-Za-z0-9-]{0,62}\.){1,8}[A-Za-z]{2,24}\b", re.ASCII)
# Digits with single separators. A card has 13 to 19 digits (ISO/IEC 7812), an international
# phone number at most 15 after the plus (E.164).
_CARD = re.compile(r"(?<![\w.+-])\d(?:[ -]?\d){12,18}(?![\w-])(?!\.\d)", re.ASCII)
_PHONE = re.compile(
    r"(?<![\w.+/=-])(?:\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?(?:\d{1,4}[ .-]?){2,5}\d{2,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[ .-]\d{3}[ .-]\d{4}|1[3-9]\d[ -]?\d{4}[ -]?\d{4})"
    r"(?![\w-])(?!\.\d)",
    re.ASCII,
)
_PHONE_DIGITS = range(8, 16)


def find_personal_data(text: str) -> Iterator[Found]:
    """Every e-mail address, payment card and phone number in the text."""
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at)
        mailbox = _MAILBOX.search(text, max(0, at - 64), at)
        if domain is not None and mailbox is not None:
            start = mailbox.start()
            yield Found("email", start, domain.end(), start, domain.end())
        at = text.find("@", at + 1)
    for match in _CARD.finditer(text):
        if _passes_luhn(match.group()):
            yield Found("payment-card", *match.span(), *match.span())
    for match in _PHONE.finditer(text):
        if sum(c.isdigit() for c in match.group()) in _PHONE_DIGITS:
            yield Found("phone", *match.span(), *match.span())


def _passes_luhn(number: str) -> bool:
    """Luhn's checksum over the digits; all zeros pass it and are no card."""
    digits = [int(c) for c in number if c.isdigit()]
    doubled = [d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2]]
    return any(digits) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
