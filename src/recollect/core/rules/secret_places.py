"""Secrets known by where they stand: key blocks, addresses, headers, cookies, manifests, SQL.

Never masks the context. Always linear: every search goes forward from a literal, and what follows
it is bounded.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from recollect.core.rules.secret_keywords import Keywords, SearchedText, declare
from recollect.core.rules.secret_names import kind_of_name
from recollect.core.rules.secret_table import (
    Row,
    RowPlace,
    SecretMatch,
    by_keywords,
    find_by_rows,
    keys,
)
from recollect.core.rules.secret_values import (
    is_password_value,
    is_placeholder,
    is_reference,
    is_token_value,
    is_uuid,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN_KEY = re.compile(
    r"-----BEGIN [A-Za-z0-9 ]{0,40}(?:PRIVATE|SECRET|Static) (?:KEY|key)[A-Za-z0-9 ]{0,20}-----"
)
# A 16384-bit RSA key is 12,700 characters of PEM; escapes and indentation add to it.
_MOST_KEY_CHARS = 32_768
_KEY_CHARS = re.compile(r"(?:[A-Za-z0-9+/=\s:,.()#>*\"'`|]|\\+[nr/t]|-(?!-))*+")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{30,}")
_ENCODED_KEY = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{60,}+={0,2}")

_USER = r"://(?P<user>[^\s:/?#@\"'<>`\\\[\](){}]{0,200}+)"
_BEHIND_USER = r":(?P<password>[^\s/\"'<>`\\]{1,200})"
_HOST = r"@(?=[\w\[$%{<-])"
_BASIC_WORDS = words(
    "password pass passwd pwd secret token user username admin root test guest postgres mysql "
    "redis rabbitmq mongo example foo bar baz xxx yyy x y z changeme pw p ***"
)
_LEAST_ACCOUNT_DIGITS = 12
_URL_TOKEN = re.compile(r"[\w.~%+-]{16,200}")

_TOKEN_SCHEMES = words("bearer token apikey")
_LEAST_BASIC_CHARS = 8

_CURL_USER = re.compile(
    r"(?<=\s)(?:-[a-zA-Z]{0,4}u|--(?:proxy-)?user)(?:[ \t=]{1,8}|(?=[\"']))"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{1,200})(?P=quote)(?P<rest>:[\"']?[^\"'\s]{1,200})?"
    r"|(?P<bare>[^\s\"':]{0,100}:[^\s]{1,200}))"
)
_MOST_CURL_CHARS = 2000


def _find_key_blocks(text: str) -> Iterator[SecretMatch]:
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
        yield SecretMatch("private-key", start, end, begin.start(), end)


def _find_encoded_keys(text: str) -> Iterator[SecretMatch]:
    for match in _ENCODED_KEY.finditer(text):
        head = match.group()[:80]
        try:
            decoded = base64.b64decode(head[: len(head) // 4 * 4])
        except (binascii.Error, ValueError):
            continue
        if b"PRIVATE KEY" in decoded:
            yield SecretMatch("private-key", *match.span(), *match.span())


def _is_url_user(value: str) -> bool:
    """Whether the user of an address is a token, or the number of an account."""
    if value.isdigit():
        return len(value) >= _LEAST_ACCOUNT_DIGITS
    return _URL_TOKEN.fullmatch(value) is not None and is_token_value(value, quoted=True)


def _is_credential(value: str) -> bool:
    if len(value) < 3 or value.lower() in _BASIC_WORDS or is_reference(value, quoted=True):
        return False
    return len(set(value)) > 1 and not value.startswith(("$", "<", "{", "[")) and value[-1] != ">"


def _is_header(match: re.Match[str], value: str) -> bool:
    scheme = (match["scheme"] or "").lower()
    if scheme == "basic" and len(value) >= _LEAST_BASIC_CHARS:
        return not is_reference(value, quoted=False) and not is_placeholder(value)
    if scheme in _TOKEN_SCHEMES and any(map(str.isdigit, value)):  # also a short one
        return any(map(str.isalpha, value)) and is_password_value(value, quoted=False)
    return is_token_value(value, quoted=False, least_chars=8) or is_uuid(value)


def _is_bearer(value: str) -> bool:
    return is_token_value(value, quoted=False)


def _find_curl_users(text: str) -> Iterator[SecretMatch]:
    at = text.find("curl")
    while at >= 0:
        following = text.find("curl", at + 4)
        limit = at + _MOST_CURL_CHARS
        for match in _CURL_USER.finditer(
            text, at, limit if following < 0 else min(limit, following)
        ):
            yield from _curl_password(match)
        at = following


def _curl_password(match: re.Match[str]) -> Iterator[SecretMatch]:
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
            yield SecretMatch("curl-user", start, start + len(bare), match.start(), match.end())
    elif is_password_value(user, quoted=True, least_chars=8):
        yield SecretMatch("curl-user", start, start + len(user), match.start(), match.end())


def _is_sql_password(match: re.Match[str], value: str) -> bool:
    return _is_credential(value) if match["value"] else is_password_value(value, quoted=True)


_COOKIES = re.compile(r"(?i)cookie[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?P<pairs>[^\r\n]{4,4000})")
_COOKIE_PAIR = re.compile(r"(?P<name>[\w.\-$]{1,64})=(?P<value>[^;,\s\"'\\]{8,2000})")
_COOKIE_MEMBER = re.compile(
    r"[\"'](?P<name>[\w.\-$]{1,64})[\"'][ \t]{0,4}(?::|=>)[ \t]{0,4}[\"']"
    r"(?P<value>[^\"'\s]{16,2000})[\"']"
)
_COOKIE_MAP = re.compile(r"(?i)cookies?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\{(?P<pairs>[^{}]{4,4000})\}")
_COOKIE_ATTRIBUTES = words(
    "expires path domain max-age samesite secure httponly priority partitioned version comment "
    "_ga _gid _gat _fbp _gcl_au lang locale language theme currency timezone tz consent"
)
_SESSION_COOKIE = re.compile(
    r"(?i)sess|(?:^|[._-])s?sid$|auth|token|jwt|csrf|xsrf|remember|login|credential|identity|sso"
    r"|ticket|\.sid$|^sid$|_user$|^id$"
)


def _find_cookies(reading: SearchedText) -> Iterator[SecretMatch]:
    text = reading.text
    for around, member in ((_COOKIES, _COOKIE_PAIR), (_COOKIE_MAP, _COOKIE_MEMBER)):
        done = 0
        for at in reading.places("cookie"):
            header = around.match(text, at) if at >= done else None
            if header is None:
                continue
            done = header.end()
            for match in member.finditer(text, *header.span("pairs")):
                if _opens_session(match["name"], match["value"]):
                    yield _match("session-cookie", match)


def _opens_session(name: str, value: str) -> bool:
    if name.lower() in _COOKIE_ATTRIBUTES or is_reference(value, quoted=True):
        return False
    if is_placeholder(value):
        return False
    return bool(_SESSION_COOKIE.search(name)) or is_token_value(value, quoted=True, least_chars=20)


_MANIFEST_CHARS = 8_000
_SECRET_KIND = re.compile(r"kind[\"']?[ \t]{0,8}:[ \t]{0,8}[\"']?secret(?!\w)")
_DATA = re.compile(
    r"(?m)^(?P<indent>[ \t]{0,40})(?:string)?data:[ \t]*\r?\n"
    r"(?P<lines>(?:(?P=indent)[ \t]+[^\n]*(?:\n|\Z)){1,400})",
    re.IGNORECASE,
)
_MEMBER = re.compile(
    r"(?m)^[ \t]+[\w.-]{1,120}:[ \t]+(?![|>&*!{[])(?P<quote>[\"']?)"
    r"(?P<value>[^\s\"'#][^\n\"'#]{3,4000}?)"
    r"(?P=quote)[ \t]*(?:#[^\n]*)?\r?$"
)
_JSON_DATA = re.compile(
    r"\"(?:string)?data\"[ \t\n]{0,40}:[ \t\n]{0,40}\{(?P<lines>[^{}]{4,4000}+)\}", re.IGNORECASE
)
_JSON_MEMBER = re.compile(
    r"\"[\w.-]{1,120}\"[ \t\n]{0,40}:[ \t\n]{0,40}\"(?P<value>[^\"\n]{4,4000})\""
)

_NAMES = Keywords((name, None) for name in keys("key|secret|token|pass|seed"))
_BYTE = r"(?:0x[0-9a-f]{1,2}+|\d{1,3}+)"
_GAP = r"[ \t\r\n]{0,12}+"
_BYTES = re.compile(
    r"[\w-]{0,24}[\"']?(?:\[\w{0,12}\])?(?:[ \t]{0,4}:[ \t]{0,4}[\w\[\]<>, ]{1,40}(?==))?"
    r"[ \t]{0,8}(?::=|=|:|=>)[ \t]{0,8}"
    r"(?:(?:new[ \t]+)?[a-z_][\w.]{0,30}[ \t]{0,2}(?:\[\w{0,12}\])?\(?)?"
    rf"[\[({{]{_GAP}(?P<value>{_BYTE}(?:{_GAP},{_GAP}{_BYTE}){{11,255}}+){_GAP},?{_GAP}[\])}}]"
)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")
_LEAST_DISTINCT_BYTES = 8
_LARGE_BYTE, _LARGEST_BYTE = 127, 255
_MOST_NAME_CHARS = 48
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"


def _find_manifests(text: str, lowered: str) -> Iterator[SecretMatch]:
    done = 0
    for kind in _SECRET_KIND.finditer(lowered):
        if kind.end() <= done:  # read with the one before it
            continue
        start = max(done, kind.start() - _MANIFEST_CHARS)
        start = max(start, text.rfind("\n---", start, kind.start()))
        reach = kind.end() + _MANIFEST_CHARS
        until = text.find("\n---", kind.end(), reach)
        done = until = min(len(text), reach) if until < 0 else until
        for block, member in ((_DATA, _MEMBER), (_JSON_DATA, _JSON_MEMBER)):
            for data in block.finditer(text, start, until):
                for match in member.finditer(text, *data.span("lines")):
                    if not is_reference(match["value"], quoted=True):
                        yield _match("manifest-secret", match)


def _find_bytes(reading: SearchedText) -> Iterator[SecretMatch]:
    text, lowered = reading.text, reading.lowered
    for name, _ in _NAMES.held(reading.found):
        for at in reading.places(name):
            match = _BYTES.match(lowered, at + len(name))
            if (
                match is not None
                and _names_key(text, at + len(name))
                and _is_random(match["value"])
            ):
                yield _match("key-bytes", match)


def _names_key(text: str, end: int) -> bool:
    lead = text[max(0, end - _MOST_NAME_CHARS) : end]
    name = lead[len(lead.rstrip(_NAME_CHARS)) :]
    tail = text[end : end + _MOST_NAME_CHARS]
    name += tail[: len(tail) - len(tail.lstrip(_NAME_CHARS))]
    return name.lower() == "key" or kind_of_name(name) in ("token", "password")


def _is_random(numbers: str) -> bool:
    values = [int(one, 0) if one.startswith("0x") else int(one) for one in _NUMBER.findall(numbers)]
    if max(values) > _LARGEST_BYTE:
        return False
    large = sum(value > _LARGE_BYTE for value in values)
    ordered = sorted(values) in (values, values[::-1])
    return len(set(values)) >= _LEAST_DISTINCT_BYTES and 4 * large >= len(values) and not ordered


_ROWS = by_keywords(
    (
        Row(
            "url-credentials",
            "://",
            rf"{_USER}(?=(?:{_BEHIND_USER.replace('?P<password>', '?:')})?{_HOST})",
            judge=_is_url_user,
        ),
        Row("url-credentials", "://", _USER + _BEHIND_USER + _HOST, judge=_is_credential),
        Row(
            "authorization-header",
            "authorization",
            "(?i)"
            r"authorization\\{0,3}[\"'`\]]{0,2}[ \t]{0,8}(?:[:=,]|=>)\s{0,8}"
            r"(?:[a-z]{1,8}[ \t(]{0,2}(?=[\"'`]))?\\{0,3}[\"'`]{0,2}[ \t]{0,4}"
            r"(?:(?P<scheme>[a-z][a-z0-9_-]{1,20})[ \t]{1,4})?"
            r"(?P<value>[A-Za-z0-9._~+/=@:|$%-]{5,}+)",
            check=_is_header,
        ),
        Row(
            "bearer-token",
            "bearer",
            r"(?i)bearer[ \t:]{1,4}(?P<value>[A-Za-z0-9._~+/-]{16,}+={0,2})",
            judge=_is_bearer,
        ),
        Row(
            "sql-password",
            "identified|password",
            "(?i)"
            r"(?:identified[ \t]{1,4}(?:with[ \t]{1,4}[\w']{1,40}[ \t]{1,4})?(?:by|as)"
            r"(?:[ \t]{1,4}password)?|password)(?:[ \t]{1,4}|[ \t]{0,2}\()[ \t]{0,2}N?\\{0,3}"
            r"(?:(?P<quote>['\"])(?P<value>[^'\"\n\\]{4,200})(?P=quote)?"
            r"|(?<=by )(?P<bare>[\w!#$%^&*@+-]{6,100}))",
            check=_is_sql_password,
            near=re.compile(
                r"\b(?:create|alter|grant|set|role|user|login|identified|update|insert)\b"
            ),
            around=(160, 0),
        ),
        Row(
            "netrc-password",
            "machine",
            r"(?:login|user)[ \t]{1,8}\S{1,100}[ \t\r\n]{1,8}password[ \t]{1,8}"
            r"(?P<value>\S{4,200})",
            judge=_is_credential,
            place=RowPlace.TEXT,
        ),
        Row(
            "private-jwk",
            '"kty',
            "(?a)"
            r"\"(?:d|p|q|dp|dq|qi|k)\\{0,3}\"[ \t]{0,4}:[ \t]{0,4}\\{0,3}\""
            r"(?P<value>[\w-]{16,2000})",
            place=RowPlace.TEXT,
        ),
        Row(
            "bundler-credentials",
            "bundle_",
            r"BUNDLE_[A-Z0-9_]{1,60}?__[A-Z0-9_]{1,40}[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
            r"(?P<value>[A-Za-z0-9]{4,100}:[A-Za-z0-9]{4,100})",
        ),
    )
)
_KEY_BLOCKS = declare("-----begin ")
_ENCODED_KEYS = declare("ls0tls1crudjti")
_CURLS = declare("curl")
_COOKIE_NAMES = declare("cookie")
_MANIFESTS = declare("kind")

PLACES = _ROWS.bits | _KEY_BLOCKS | _ENCODED_KEYS | _CURLS
BLOCKS = _COOKIE_NAMES | _MANIFESTS | _NAMES.bits


def find_in_place(reading: SearchedText) -> Iterator[SecretMatch]:
    """Every secret known by its place."""
    text, found = reading.text, reading.found
    yield from find_by_rows(_ROWS, reading)
    if found & _KEY_BLOCKS:
        yield from _find_key_blocks(text)
    if found & _ENCODED_KEYS:
        yield from _find_encoded_keys(text)
    if found & _CURLS:
        yield from _find_curl_users(text)


def find_in_blocks(reading: SearchedText) -> Iterator[SecretMatch]:
    """Every secret among cookies, in a manifest's data, and every key written as numbers."""
    if reading.found & _COOKIE_NAMES:
        yield from _find_cookies(reading)
    if reading.found & _MANIFESTS and "secret" in reading.lowered:
        yield from _find_manifests(reading.text, reading.lowered)
    if reading.found & _NAMES.bits and ("[" in reading.text or "{" in reading.text):
        yield from _find_bytes(reading)


def _match(rule: str, match: re.Match[str]) -> SecretMatch:
    return SecretMatch(rule, *match.span("value"), *match.span())
