"""Secrets that are known by where they stand: key blocks, URLs, headers, command lines, SQL.

Owns the contexts in which a value is a credential whatever its format. Never masks the
context itself (user names, schemes and header names stay readable). Always linear: every
search goes forward from a literal, and what follows it is bounded or ends at the next one.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, NamedTuple

from recollect.rules.secret_values import (
    is_password_value,
    is_placeholder,
    is_reference,
    is_token_value,
    is_uuid,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Found(NamedTuple):
    """A secret at [start, end), and the whole of what was read to know it, [first, last)."""

    rule: str
    start: int
    end: int
    first: int
    last: int


def places_of(text: str, literal: str) -> Iterator[int]:
    """Where the literal stands in the text, one place behind the other."""
    at = text.find(literal)
    while at >= 0:
        yield at
        at = text.find(literal, at + len(literal))


_BEGIN_KEY = re.compile(
    r"-----BEGIN [A-Za-z0-9 ]{0,40}(?:PRIVATE|SECRET|Static) (?:KEY|key)[A-Za-z0-9 ]{0,20}-----"
)
# A 16384-bit RSA key is 12,700 characters of PEM; escapes and indentation add to it.
_MOST_KEY_CHARS = 32_768
_KEY_CHARS = re.compile(r"(?:[A-Za-z0-9+/=\s:,.()#>*\"'`|]|\\+[nr/t]|-(?!-))*+")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{30,}")
_ENCODED_KEY = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{60,}+={0,2}")

_URL_USER = re.compile(
    r"://(?P<user>[^\s:/?#@\"'<>`\\\[\](){}]{0,200}+)(?::(?P<password>[^\s/\"'<>`\\]{1,200}))?@"
    r"(?=[\w\[$%{<-])"
)
_BASIC_WORDS = words(
    "password pass passwd pwd secret token user username admin root test guest postgres mysql "
    "redis rabbitmq mongo example foo bar baz xxx yyy x y z changeme pw p ***"
)
_LEAST_ACCOUNT_DIGITS = 12
_URL_TOKEN = re.compile(r"[\w.~%+-]{16,200}")

_AUTHORIZATION = re.compile(
    r"(?:proxy-)?authorization\\{0,3}[\"'`\]]{0,2}[ \t]{0,8}(?:[:=,]|=>)\s{0,8}"
    r"(?:[a-z]{1,8}[ \t(]{0,2}(?=[\"'`]))?"
    r"\\{0,3}[\"'`]{0,2}[ \t]{0,4}(?:(?P<scheme>[a-z][a-z0-9_-]{1,20})[ \t]{1,4})?"
    r"(?P<value>[A-Za-z0-9._~+/=@:|$%-]{8,}+)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"bearer[ \t:]{1,4}(?P<value>[A-Za-z0-9._~+/-]{16,}+={0,2})", re.IGNORECASE)

_CURL_USER = re.compile(
    r"(?<=\s)(?:-[a-zA-Z]{0,4}u|--(?:proxy-)?user)(?:[ \t=]{1,8}|(?=[\"']))"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{1,200})(?P=quote)(?P<rest>:[\"']?[^\"'\s]{1,200})?"
    r"|(?P<bare>[^\s\"':]{0,100}:[^\s]{1,200}))"
)
_MOST_CURL_CHARS = 2000

_SQL_VALUE = re.compile(
    r"(?:identified[ \t]{1,4}(?:with[ \t]{1,4}[\w']{1,40}[ \t]{1,4})?(?:by|as)"
    r"(?:[ \t]{1,4}password)?"
    r"|password)(?:[ \t]{1,4}|[ \t]{0,2}\()[ \t]{0,2}N?\\{0,3}"
    r"(?:(?P<quote>['\"])(?P<value>[^'\"\n\\]{4,200})(?P=quote)?"
    r"|(?<=by )(?P<bare>[\w!#$%^&*@+-]{6,100}))",
    re.IGNORECASE,
)
_SQL_VERB = re.compile(r"\b(?:create|alter|grant|set|role|user|login|identified|update|insert)\b")
_SQL_REACH_CHARS = 160
_JWK_MEMBER = re.compile(
    r"\"(?:d|p|q|dp|dq|qi|k)\\{0,3}\"[ \t]{0,4}:[ \t]{0,4}\\{0,3}\"(?P<value>[\w-]{16,2000})",
    re.ASCII,
)
_NETRC = re.compile(
    r"(?:login|user)[ \t]{1,8}\S{1,100}[ \t\r\n]{1,8}password[ \t]{1,8}(?P<value>\S{4,200})"
)
_BUNDLE = re.compile(
    r"BUNDLE_[A-Z0-9_]{1,60}?__[A-Z0-9_]{1,40}[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
    r"(?P<value>[A-Za-z0-9]{4,100}:[A-Za-z0-9]{4,100})"
)


def find_in_context(text: str, lowered: str) -> Iterator[Found]:
    """Every secret known by its place; `lowered` is the text in lower case, of equal length."""
    if "-----BEGIN " in text:
        yield from _find_key_blocks(text)
    if "LS0tLS1CRUdJTi" in text:
        yield from _find_encoded_keys(text)
    if "://" in text:
        yield from _find_url_credentials(text)
    yield from _find_headers(text, lowered)
    if "curl" in text:
        yield from _find_curl_users(text)
    if "identified" in lowered or "password" in lowered:
        yield from _find_quoted_passwords(text, lowered)
    if '"kty' in text:
        for match in _JWK_MEMBER.finditer(text):
            yield _found("private-jwk", match, "value")
    if "BUNDLE_" in text:
        for match in _BUNDLE.finditer(text):
            yield _found("bundler-credentials", match, "value")


def _found(rule: str, match: re.Match[str], group: str) -> Found:
    return Found(rule, match.start(group), match.end(group), match.start(), match.end())


def _find_key_blocks(text: str) -> Iterator[Found]:
    """The bodies of PEM and PGP private keys, whole or cut off; the marks around them stay."""
    for begin in _BEGIN_KEY.finditer(text):
        start, limit = begin.end(), begin.end() + _MOST_KEY_CHARS
        end = text.find("-----", start, limit)
        closed = end >= 0 and text.startswith("-----END", end)
        if not closed:
            reach = _KEY_CHARS.match(text, start, limit if end < 0 else end)
            end = reach.end() if reach is not None else start
        if _KEY_LINE.search(text, start, end) is None:
            continue
        body = text[start:end]
        start += len(body) - len(body.lstrip(" \t\r\n"))
        end -= len(body) - len(body.rstrip(" \t\r\n"))
        yield Found("private-key", start, end, begin.start(), end)


def _find_encoded_keys(text: str) -> Iterator[Found]:
    """A PEM file in base64, when what it encodes is a private key (not a certificate)."""
    for match in _ENCODED_KEY.finditer(text):
        head = match.group()[:80]
        try:
            decoded = base64.b64decode(head[: len(head) // 4 * 4])
        except (binascii.Error, ValueError):
            continue
        if b"PRIVATE KEY" in decoded:
            yield Found("private-key", *match.span(), *match.span())


def _find_url_credentials(text: str) -> Iterator[Found]:
    at = text.find("://")
    while at >= 0:
        match = _URL_USER.match(text, at)
        if match is not None:
            password = match["password"]
            if password is None:
                user = match["user"]
                if _URL_TOKEN.fullmatch(user) and is_token_value(user, quoted=True):
                    yield _found("url-credentials", match, "user")
            else:
                user = match["user"]
                long_number = user.isdigit() and len(user) >= _LEAST_ACCOUNT_DIGITS
                if long_number or (
                    _URL_TOKEN.fullmatch(user) and is_token_value(user, quoted=True)
                ):
                    yield _found("url-credentials", match, "user")
                if _is_credential(password):
                    yield _found("url-credentials", match, "password")
        at = text.find("://", at + 3)


def _is_credential(value: str) -> bool:
    """Whether the second half of `user:password` is more than the word for it."""
    if len(value) < 3 or value.lower() in _BASIC_WORDS or is_reference(value, quoted=True):
        return False
    return len(set(value)) > 1 and not value.startswith(("$", "<", "{", "[")) and value[-1] != ">"


def _find_headers(text: str, lowered: str) -> Iterator[Found]:
    at = lowered.find("authorization")
    while at >= 0:
        match = _AUTHORIZATION.match(text, at)
        if match is not None and _is_header_value(match["scheme"] or "", match["value"]):
            yield _found("authorization-header", match, "value")
        at = lowered.find("authorization", at + 13)
    at = lowered.find("bearer")
    while at >= 0:
        match = _BEARER.match(text, at)
        if match is not None and is_token_value(match["value"], quoted=False):
            yield _found("bearer-token", match, "value")
        at = lowered.find("bearer", at + 6)


def _is_header_value(scheme: str, value: str) -> bool:
    if scheme.lower() == "basic":
        return not is_reference(value, quoted=False) and not is_placeholder(value)
    return is_token_value(value, quoted=False, least_chars=8) or is_uuid(value)


def _find_curl_users(text: str) -> Iterator[Found]:
    at = text.find("curl")
    while at >= 0:
        following = text.find("curl", at + 4)
        limit = at + _MOST_CURL_CHARS
        for match in _CURL_USER.finditer(
            text, at, limit if following < 0 else min(limit, following)
        ):
            yield from _curl_password(match)
        at = following


def _curl_password(match: re.Match[str]) -> Iterator[Found]:
    """The password of `user:password`; the user where it stands alone before the colon."""
    group = "rest" if match["rest"] else "quoted" if match["quoted"] else "bare"
    user, colon, password = match[group].partition(":")
    if not colon or (group == "quoted" and match["rest"] is None and ":" not in match["quoted"]):
        return
    start = match.start(group)
    if password:
        start += len(user) + 1
        bare = password.strip("\"'{}")
        start += password.index(bare) if bare else 0
        if _is_credential(password) and _is_credential(bare):
            yield Found("curl-user", start, start + len(bare), match.start(), match.end())
    elif is_password_value(user, quoted=True, least_chars=8):
        yield Found("curl-user", start, start + len(user), match.start(), match.end())


def _find_quoted_passwords(text: str, lowered: str) -> Iterator[Found]:
    for opening in ("identified", "password"):
        at = lowered.find(opening)
        while at >= 0:
            match = _SQL_VALUE.match(text, at)
            reach = max(0, at - _SQL_REACH_CHARS)
            if match is not None and _SQL_VERB.search(lowered, reach, at + len(opening)):
                if match["value"] and _is_credential(match["value"]):
                    yield _found("sql-password", match, "value")
                elif match["bare"] and is_password_value(match["bare"], quoted=True):
                    yield _found("sql-password", match, "bare")
            at = lowered.find(opening, at + len(opening))
    if "login" in lowered and "machine" in lowered:
        for match in _NETRC.finditer(text):
            if _is_credential(match["value"]):
                yield _found("netrc-password", match, "value")
