"""Secrets recognized by the name before them: `DB_PASSWORD=…`, `"apiKey": "…"`, pairs, columns.
`secret_values` decides whether a value is a secret. The time is linear: every search goes forward
from a literal, over a limited length."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from recollect.core.rules.secret_table import Keywords, SearchedText, SecretMatch, declare, keys
from recollect.core.rules.secret_values import (
    is_chosen_words,
    is_name,
    is_password_value,
    is_placeholder,
    is_reference,
    is_token_value,
    is_uuid,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Parts of names for secrets. `_ASSIGNMENT` then reads the whole name.
_HINTS = ("pass", "pw", "secret", "token", "key", "cred", "auth", "access", "sonar", "psk")
_HAN_KINDS = {"密码": "password", "口令": "password", "密钥": "token", "令牌": "token"}
_ASSIGNMENT = re.compile(
    r"(?P<tail>[a-z0-9_.-]{0,32}+)\\{0,3}[\"'`]?[\])]?"
    r"(?:[ \t]{0,20}:?[ \t]{0,4}\b(?:str|string|char|text|varchar)\b[ \t*]{0,4}(?==))?"
    r"(?P<between>[ \t]{0,20})"
    r"(?P<sign>[?|:+!]{0,3}={1,3}>?|:{1,3}|->|,(?=[ \t]{0,4}\\{0,3}[\"'`])|\((?=[\"'`])|>"
    r"|[ \t]is[ \t]|[是为：]|[ \t]{1,4}(?=[^\s=:-]))"
    r"(?P<gap>[ \t]{0,20}(?:\\?\r?\n[ \t]{0,20}(?=\\{0,3}[\"'`]))?)"
    r"(?:(?:bytes(?:\.fromhex)?|bytearray\.fromhex|(?:base64\.)?b64decode|buffer\.from|unhexlify"
    r"|secretstr|encoding\.utf8\.getbytes|str|string)\()?"
    r"(?:[fbru@ln]{1,2}(?=[\"'`]))?(?P<escape>\\{0,3})(?P<quote>[\"'`]{0,3})"
    # Shorter values are no secrets, and a value does not begin with the next parameter.
    r"(?:(?<=[\"'`])(?=\S{4})(?![?&;]{1,4}[\w.-]{1,40}=)"
    r"|(?=[^\s\"'`;<>\\]{6})(?![^\s?&]{0,3}[?&]{1,4}[\w.-]{1,40}=))"
)
_QUOTED = {
    quote: re.compile(rf"(?:[^{quote}\\\r\n]|\\[^\r\n]){{1,4000}}+(?={quote})") for quote in "\"'`"
}
_QUOTED_IN_ESCAPES = {quote: re.compile(rf"[^{quote}\\\r\n]{{1,4000}}+(?=\\)") for quote in "\"'`"}
_BARE = re.compile(r"[!#-&*-+\--/0-9?@A-Z^_a-z~.({\[$%]{1,1000}+={0,2}")
_BARE_LINE = re.compile(r"[^\s\"'`;<>\\]{1,1000}+")
_REST_OF_TOKEN = re.compile(r"[\w.~+/-]*+={0,2}", re.ASCII)
_PATTERN_CLASS = re.compile(r"[SwWdDs][+*{]")  # a pattern, not a value: `token=\S+`
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-. "
_MOST_NAME_CHARS = 48
_MOST_ARN_CHARS = 80
_FLAG = re.compile("-|define|global|[密口令]")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_PASSWORD_WORDS = words("password passwort passwd pwd passphrase passcode pass pw psk")
_OTHER_PASSES = words("bypass compass encompass surpass trespass overpass underpass multipass")
_TOKEN_WORDS = words("secret token credential credentials cred creds apikey auth")
_PASSWORD_ENDINGS = ("password", "passwd", "dbpass", "mysqlpass", "userpass", "rootpass")
_TOKEN_ENDINGS = ("apikey", "secretkey", "accesskey", "privatekey", "authkey", "accountkey",
    "signingkey", "sharedkey", "secret", "token")  # fmt: skip
_KEY_QUALIFIERS = words(
    "api access secret private auth account encryption encrypt signing sign master storage shared "
    "service subscription deploy app application client consumer webhook admin license licence "
    "host function connection bot integration ingest server session cookie hmac jwt aes rsa "
    "developer user dev"
)
_ISSUERS = words(
    "airtable algolia anthropic asana atlassian aws azure bitbucket circleci cloudflare cohere "
    "confluent datadog deepgram discord dropbox elevenlabs fastly firebase gemini github gitlab "
    "google grafana heroku hubspot huggingface intercom jira jenkins linear mailchimp mailgun "
    "mapbox mistral mixpanel netlify newrelic notion okta openai openrouter pagerduty paypal "
    "pinecone plaid postman render replicate rollbar segment sendgrid sentry shopify slack snyk "
    "sonar square stripe sumologic supabase telegram twilio twitter vercel zendesk"
)
_NEUTRAL_WORDS = words(
    "value val string str text data prod production dev development test testing staging stage "
    "live default base b encoded plain raw hex old new current primary secondary sandbox local ci "
    "read write only ro rw header param env var v x a c d e"
)
_PUBLIC_WORDS = words(
    "public publishable pub next page continuation pagination cursor sync max min num count total "
    "cache foreign sort partition index row no non without invalid wrong device push csrf xsrf "
    "authenticity"
)

_READING_WORDS = words("get fetch read load lookup find retrieve resolve request require access")

_NAMES = Keywords((hint, None) for hint in (*_HINTS, *_HAN_KINDS))
NAME_BITS = _NAMES.bits


def find_assigned(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every value that is assigned to a name such as `password`."""
    text, lowercase_text = reading.text, reading.lowercase_text
    done = 0
    hints = [hint for hint, _ in _NAMES.find_held(reading.found)]
    for offset in sorted([offset + len(hint) for hint in hints for offset in reading.places(hint)]):
        match = None if offset < done else _ASSIGNMENT.match(lowercase_text, offset)
        if match is None:
            continue
        done = match.start("sign") + 1  # the other hints of this name promise the same
        name_start = _name_start(text, offset)
        kind = _kind_of_assignment(reading, match, name_start)
        if kind is None:
            continue
        secret_match = _read_value(reading, match, kind, name_start)
        if secret_match is not None:
            done = secret_match.end
            yield secret_match


def _name_start(text: str, offset: int) -> int:
    lead = text[max(0, offset - _MOST_NAME_CHARS) : offset]
    return offset - (len(lead) - len(lead.rstrip(_NAME_CHARS)))


def _kind_of_assignment(reading: SearchedText, match: re.Match[str], start: int) -> str | None:
    text, is_spaced = reading.text, match["sign"].isspace()
    if (
        is_spaced
        and _FLAG.search(text, max(0, match.start() - _MOST_NAME_CHARS), match.start()) is None
    ):
        return None
    han = _HAN_KINDS.get(text[match.start() - 2 : match.start()])
    if han is not None:
        return han
    if text[start - 1 : start] == ":" and "arn:" in text[max(0, start - _MOST_ARN_CHARS) : start]:
        return None  # `arn:aws:secretsmanager:…:secret:prod/db` is the name of a secret
    if text[start - 1 : start] == "/" and match["sign"] == ":" and not match["gap"]:
        return None  # `registry/auth:v2` is an image
    name = text[start : match.end("tail")]
    if is_spaced:
        before, _, name = name.rpartition(" ")
        if not (name.startswith("-") or before.endswith(("define", "global"))):
            return None
    return reading.judge_once(_kind_of_name, name, match["sign"] == "(")


def _kind_of_name(name: str, is_called: bool = False) -> str | None:  # noqa: FBT001 - a cache key
    words = [word.lower() for word in _WORDS.findall(name)]
    if any(word in _PUBLIC_WORDS for word in words[-3:]):
        return None
    if is_called and not _READING_WORDS.isdisjoint(words[-3:]):
        return None  # the argument of `get_secret("prod/db")` is the secret's name
    while words and (words[-1] in _NEUTRAL_WORDS or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    last, before = words[-1], words[:-1]
    if last in _PASSWORD_WORDS or last.endswith(_PASSWORD_ENDINGS):
        return "password"
    if last.endswith("pass") and last not in _OTHER_PASSES:
        return "password"
    if last in _TOKEN_WORDS or last.endswith(_TOKEN_ENDINGS):
        return "token"
    if last in ("id", "accessid") and "access" in (*before[-2:], last[:6]):
        return "id"
    if last == "login" and before[-1:] == ["sonar"]:  # a name such as `sonar.login` holds a token
        return "token"
    if last == "key" and _is_secret_key(name, before):
        return "token"
    return None


def _is_secret_key(name: str, before: list[str]) -> bool:
    if any(word in _KEY_QUALIFIERS or word in _ISSUERS for word in before[-2:]):
        return True
    constant = name.rpartition(" ")[2]
    return constant.isupper() and "_" in constant


def _read_value(
    reading: SearchedText, match: re.Match[str], kind: str, name_start: int
) -> SecretMatch | None:
    text, start, quote = reading.text, match.end(), match["quote"]
    if match["escape"] and not quote and _PATTERN_CLASS.match(text, start):
        return None
    value: re.Match[str] | None = None
    if quote:
        table = _QUOTED_IN_ESCAPES if match["escape"] else _QUOTED
        value = table[quote[0]].match(text, start)
    quoted = value is not None
    if value is None:
        on_line = _is_alone(match) and (name_start == 0 or text[name_start - 1] == "\n")
        value = (_BARE_LINE if on_line else _BARE).match(text, start)
    if value is None:
        return None
    end = value.end()
    content = value.group()
    if not quoted:
        if content.endswith("..."):  # the author shortened the value
            return None
        if content[0] == "-" and match["sign"] == ">":  # `-storepass <password> -keypass`
            return None
        content = content.rstrip(".,:!?)") if kind == "token" else content.rstrip(",;")
        end = start + len(content)
        if content.isidentifier() and text.endswith(content, name_start, match.end("tail")):
            return None  # a variable: `self.password2 = password2`
    way = _Assignment(
        quoted=quoted,
        alone=quoted or _is_alone(match),
        prose=match["sign"].strip() == "is",
        to_secret=match.string.startswith("secret", match.end("tail") - len("secret")),
    )
    if not reading.judge_once(_is_secret, content, kind, way):
        return None
    if not quoted and kind == "token":
        token_rest = _REST_OF_TOKEN.match(text, end)
        end = token_rest.end() if token_rest is not None and end - start >= 1000 else end
    rule = "assigned-password" if kind == "password" else "assigned-token"
    return SecretMatch(rule, start, end, name_start, end)


class _Assignment(NamedTuple):
    quoted: bool
    alone: bool
    prose: bool
    to_secret: bool


def _is_secret(value: str, kind: str, way: _Assignment) -> bool:
    quoted = way.quoted
    if kind == "password":
        if way.prose and not any(c.isdigit() for c in value):
            return False
        if is_password_value(value, quoted=quoted, least_chars=4 if quoted else 6):
            return True
        return way.alone and is_chosen_words(value)
    if is_token_value(value, quoted=quoted):
        return not (kind == "id" and is_uuid(value))
    # a passphrase with a number, assigned to a constant whose name ends with "secret"
    return quoted and way.to_secret and is_chosen_words(value) and value[-1].isdigit()


def _is_alone(match: re.Match[str]) -> bool:
    if match["sign"] == ">" or match["sign"].isspace():  # an XML element or a flag
        return True
    return match["sign"] == "=" and not match["between"] and not match["gap"]


_NAMING = r"(?:name|key|variable|parameterkey|field|label|param|header|property)"
_JOINT = r"[\"']?[ \t]{0,8}(?:[:=]|=>)[ \t]{0,8}"
_NAMED = re.compile(
    rf"[\"'\s<({{,](?:{_NAMING}){_JOINT}(?P<nq>[\"']?)(?P<name>[\w.$ -]{{2,80}}?)(?P=nq)"
    r"[ \t]{0,8}[,;]?(?:\r?\n)?[ \t]{0,24}[\"'\s]?(?:parameter|string|secret|default)?\Z",
    re.IGNORECASE,
)
_HELD = re.compile(
    rf"{_JOINT}(?P<q>[\"']?)(?P<value>[^\n\"']{{4,2000}}?)(?=(?P=q)(?:[\s,;/>}}\])]|$))"
)
_HOLDS = re.compile(r"[\"']?[ \t]{0,8}(?:[:=>]|=>)")
_PAIR_REACH_CHARS = 160
_SESSION_NAME = re.compile(r"(?i)sess(?:ion)?[_-]?id$|^sid$|\.sid$|session$|remember_token")

_COLUMNS = words(
    "password passwd pwd pass passwort kennwort contraseña clave senha пароль 密码 密碼 パスワード "
    "비밀번호 passphrase passcode wachtwoord hasło psk"
)
_HEADERS = Keywords(
    (keyword, None)
    for keyword in (
        *keys("pass|pwd|secret|token|key|kennwort|senha|clave|psk"),
        *keys("contraseña|пароль|密码|密碼|パスワード|비밀번호"),
    )
)
COLUMN_BITS, PAIR_BITS = _HEADERS.bits, declare("value")
_MOST_HEADER_CHARS = 400
_MARK = re.compile(r"[|,\t#;]")
_ROW_NAME = re.compile(r"[\w.-]{2,80}")
_COLUMN_NAME = re.compile(r"[^\W_][\w ./#'-]{0,39}")
_NO_HEADER = re.compile(r"[](){}[=<>!$&?@\\]")
_RULE_LINE = re.compile(r"[\s|:+=-]+$")


def find_pairs(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find secrets in pairs of members or attributes: one holds the name, the other the value."""
    text = reading.text
    since = 0
    for offset in reading.places("value"):
        if _HOLDS.match(text, offset + 5) is None:
            continue
        name_match = _NAMED.search(text, max(since, offset - _PAIR_REACH_CHARS), offset)
        value_match = name_match and _HELD.match(text, offset + 5)
        since = offset
        if (
            name_match
            and value_match
            and _is_paired(name_match["name"], value_match["value"].strip())
        ):
            value = value_match["value"].strip()
            start = value_match.start("value") + value_match["value"].index(value)
            since = start + len(value)
            kind = "password" if _kind_of_name(name_match["name"]) == "password" else "token"
            yield SecretMatch(
                f"assigned-{kind}", start, since, name_match.start(), max(since, value_match.end())
            )


def _is_paired(name: str, value: str) -> bool:
    if not value or is_reference(value, quoted=True):
        return False
    kind = _kind_of_name(name)
    if kind == "password":
        return is_password_value(value, quoted=True) or is_chosen_words(value)
    if kind is not None and is_token_value(value, quoted=True):
        return True
    return _SESSION_NAME.search(name) is not None and len(value) >= 16 and " " not in value


def find_columns(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find secrets in table cells below a header such as "password", "key" or "token"."""
    text = reading.text
    table_end = -1
    for start, end in sorted(_header_lines(reading)):
        if "|" in text[start:end]:
            yield from _row_pairs(text, start, end)
        if start > table_end:
            matches, last = _cells(text, start, end)
            yield from matches
            table_end = max(table_end, last)


def _header_lines(reading: SearchedText) -> set[tuple[int, int]]:
    lowercase_text = reading.lowercase_text
    lines: set[tuple[int, int]] = set()
    for keyword, _ in _HEADERS.find_held(reading.found):
        end = -1
        for offset in reading.places(keyword):
            if offset < end:  # the table's header is on the previous line
                continue
            since = max(0, offset - _MOST_HEADER_CHARS)
            start = max(lowercase_text.rfind("\n", since, offset) + 1, since)
            end = lowercase_text.find("\n", offset, start + _MOST_HEADER_CHARS)
            if end < 0:
                end = min(len(lowercase_text), start + _MOST_HEADER_CHARS)
            if start and lowercase_text[start - 1] != "\n":  # the line is longer than any header
                end = lowercase_text.find("\n", offset) % (len(lowercase_text) + 1)
                continue
            if (start, end) in lines or not _MARK.search(lowercase_text, start, end):
                continue
            if (
                not _NO_HEADER.search(lowercase_text, start, end)
                or "|" in lowercase_text[start:end]
            ):
                lines.add((start, end))
    return lines


def _row_pairs(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    cells = text[start:end].split("|")
    place = start
    for name, cell in pairwise(cells):
        place += len(name) + 1
        cell_name, value = name.strip(" \t`*"), cell.strip(" \t`*\r")
        if value and _ROW_NAME.fullmatch(cell_name) and _is_paired(cell_name, value):
            first = place + cell.index(value)
            yield SecretMatch("table-secret", first, first + len(value), start, end)


def _cells(text: str, start: int, end: int) -> tuple[list[SecretMatch], int]:
    matches: list[SecretMatch] = []
    header, offset = text[start:end], end + 1
    mark = next((sign for sign in "|\t,;" if sign in header), ":")
    stop = text.find("\n", offset)
    below = text[offset:] if stop < 0 else text[offset:stop]
    if below.count(mark) != header.count(mark) and not _RULE_LINE.match(below):
        return matches, end  # checked first, because most texts contain no table
    columns, width = _secret_columns(header, mark)
    while columns and offset < len(text):
        stop = text.find("\n", offset)
        stop = len(text) if stop < 0 else stop
        cells = text[offset:stop].split(mark)
        if _RULE_LINE.match(text, offset, stop) is None:
            if len(cells) != width:
                break
            for column, kind in columns:
                value = cells[column].strip(" \t\"'`*\r")
                if value and _is_cell_secret(value, kind):
                    first = offset + sum(len(cell) + 1 for cell in cells[:column])
                    first += cells[column].index(value)
                    matches.append(
                        SecretMatch("table-secret", first, first + len(value), start, stop)
                    )
        elif not text[offset:stop].strip():
            break
        offset = stop + 1
    return matches, offset - 1


def _secret_columns(header: str, mark: str) -> tuple[list[tuple[int, str]], int]:
    if mark == ":" and not (header.startswith("#") and header.count(":") >= 2):
        return [], 0
    if mark != "|" and header[0].isspace():
        return [], 0
    names = [name.strip(' \t\r"`*#') for name in header.split(mark)]
    nonempty_names = [name for name in names if name]
    if len(nonempty_names) < 2 or not all(map(_COLUMN_NAME.fullmatch, nonempty_names)):
        return [], 0
    columns = [(index, kind) for index, name in enumerate(names) if (kind := _column_kind(name))]
    return columns, len(names)


def _column_kind(name: str) -> str | None:
    if name.lower() in _COLUMNS:
        return "password"
    kind = _kind_of_name(name)
    return None if kind == "id" else kind


def _is_cell_secret(value: str, kind: str) -> bool:
    if " " in value or is_reference(value, quoted=True):
        return False
    if kind == "password":
        return is_password_value(value, quoted=True) or is_chosen_words(value)
    has_digit = any(c.isdigit() for c in value)
    return has_digit and is_token_value(value, quoted=True, least_chars=16) and not is_name(value)


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
_MANIFEST_CHARS = 8_000
_SECRET_KIND = re.compile(r"kind[\"']?[ \t]{0,8}:[ \t]{0,8}[\"']?secret(?!\w)")
_DATA = re.compile(
    r"(?m)^(?P<indent>[ \t]{0,40})(?:string)?data:[ \t]*\r?\n"
    r"(?P<lines>(?:(?P=indent)[ \t]+[^\n]*(?:\n|\Z)){1,400})",
    re.IGNORECASE,
)
_MEMBER = re.compile(
    r"(?m)^[ \t]+[\w.-]{1,120}:[ \t]+(?![|>&*!{[])(?P<quote>[\"']?)"
    r"(?P<value>[^\s\"'#][^\n\"'#]{3,4000}?)(?P=quote)[ \t]*(?:#[^\n]*)?\r?$"
)
_JSON_DATA = re.compile(
    r"\"(?:string)?data\"[ \t\n]{0,40}:[ \t\n]{0,40}\{(?P<lines>[^{}]{4,4000}+)\}", re.IGNORECASE
)
_JSON_MEMBER = re.compile(
    r"\"[\w.-]{1,120}\"[ \t\n]{0,40}:[ \t\n]{0,40}\"(?P<value>[^\"\n]{4,4000})\""
)
_COOKIE_NAMES, _MANIFESTS = declare("cookie"), declare("kind")
MEMBER_BITS = _COOKIE_NAMES | _MANIFESTS


def find_members(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every secret in a cookie or in a Kubernetes Secret."""
    if reading.found & _COOKIE_NAMES:
        yield from _find_cookies(reading)
    if reading.found & _MANIFESTS and "secret" in reading.lowercase_text:
        yield from _find_manifests(reading.text, reading.lowercase_text)


def _find_cookies(reading: SearchedText) -> Iterator[SecretMatch]:
    text = reading.text
    for header_pattern, member in ((_COOKIES, _COOKIE_PAIR), (_COOKIE_MAP, _COOKIE_MEMBER)):
        done = 0
        for offset in reading.places("cookie"):
            header = header_pattern.match(text, offset) if offset >= done else None
            if header is None:
                continue
            done = header.end()
            for match in member.finditer(text, *header.span("pairs")):
                if _opens_session(match["name"], match["value"]):
                    yield SecretMatch("session-cookie", *match.span("value"), *match.span())


def _opens_session(name: str, value: str) -> bool:
    if name.lower() in _COOKIE_ATTRIBUTES or is_reference(value, quoted=True):
        return False
    if is_placeholder(value):
        return False
    return bool(_SESSION_COOKIE.search(name)) or is_token_value(value, quoted=True, least_chars=20)


def _find_manifests(text: str, lowercase_text: str) -> Iterator[SecretMatch]:
    done = 0
    for kind in _SECRET_KIND.finditer(lowercase_text):
        if kind.end() <= done:  # the previous manifest included this one
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
                        yield SecretMatch("manifest-secret", *match.span("value"), *match.span())
