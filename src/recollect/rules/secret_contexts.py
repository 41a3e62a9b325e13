"""Secrets known by where they stand (key blocks, URLs, headers, command lines, SQL), or by the name
they are given (`DB_PASSWORD=…`, `"apiKey": "…"`).

Never masks the context or the name, and leaves to `secret_values` whether a value is a secret.
Always linear: every search goes forward from a literal, and what follows it is bounded.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, NamedTuple

from recollect.rules.secret_triggers import one_of, trigger, with_triggers
from recollect.rules.secret_values import (
    is_chosen_words,
    is_password_value,
    is_placeholder,
    is_reference,
    is_token_value,
    is_uuid,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class SecretMatch(NamedTuple):
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
    r"(?P<value>[A-Za-z0-9._~+/=@:|$%-]{5,}+)",
    re.IGNORECASE,
)
_TOKEN_SCHEMES = words("bearer token apikey")
_LEAST_BASIC_CHARS = 8
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


_HEADERS = trigger(parts=("authorization", "bearer"))
_PLACED = trigger(
    parts=("begin", "LS0tLS1CRUdJTi", "curl", "identified", "password", "kty", "bundle")
)


def find_in_context(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Every secret known by its place; `lowered` is the text in lower case, of equal length,
    `found` are the triggers in it."""
    if "://" in text:
        yield from _find_url_credentials(text)
    if found & _HEADERS:
        yield from _find_headers(text, lowered)
    if not found & _PLACED:
        return
    if "-----BEGIN " in text:
        yield from _find_key_blocks(text)
    if "LS0tLS1CRUdJTi" in text:
        yield from _find_encoded_keys(text)
    if "curl" in text:
        yield from _find_curl_users(text)
    if "identified" in lowered or "password" in lowered:
        yield from _find_quoted_passwords(text, lowered)
    if '"kty' in text:
        for match in _JWK_MEMBER.finditer(text):
            yield secret_match("private-jwk", match, "value")
    if "BUNDLE_" in text:
        for match in _BUNDLE.finditer(text):
            yield secret_match("bundler-credentials", match, "value")


def secret_match(rule: str, match: re.Match[str], group: str) -> SecretMatch:
    """A secret that stands in a group of a match."""
    return SecretMatch(rule, match.start(group), match.end(group), match.start(), match.end())


def _find_key_blocks(text: str) -> Iterator[SecretMatch]:
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
        yield SecretMatch("private-key", start, end, begin.start(), end)


def _find_encoded_keys(text: str) -> Iterator[SecretMatch]:
    """A PEM file in base64, when what it encodes is a private key (not a certificate)."""
    for match in _ENCODED_KEY.finditer(text):
        head = match.group()[:80]
        try:
            decoded = base64.b64decode(head[: len(head) // 4 * 4])
        except (binascii.Error, ValueError):
            continue
        if b"PRIVATE KEY" in decoded:
            yield SecretMatch("private-key", *match.span(), *match.span())


def _find_url_credentials(text: str) -> Iterator[SecretMatch]:
    at = text.find("://")
    while at >= 0:
        match = _URL_USER.match(text, at)
        if match is not None:
            password = match["password"]
            if password is None:
                user = match["user"]
                if _URL_TOKEN.fullmatch(user) and is_token_value(user, quoted=True):
                    yield secret_match("url-credentials", match, "user")
            else:
                user = match["user"]
                long_number = user.isdigit() and len(user) >= _LEAST_ACCOUNT_DIGITS
                if long_number or (
                    _URL_TOKEN.fullmatch(user) and is_token_value(user, quoted=True)
                ):
                    yield secret_match("url-credentials", match, "user")
                if _is_credential(password):
                    yield secret_match("url-credentials", match, "password")
        at = text.find("://", at + 3)


def _is_credential(value: str) -> bool:
    """Whether the second half of `user:password` is more than the word for it."""
    if len(value) < 3 or value.lower() in _BASIC_WORDS or is_reference(value, quoted=True):
        return False
    return len(set(value)) > 1 and not value.startswith(("$", "<", "{", "[")) and value[-1] != ">"


def _find_headers(text: str, lowered: str) -> Iterator[SecretMatch]:
    at = lowered.find("authorization")
    while at >= 0:
        match = _AUTHORIZATION.match(text, at)
        if match is not None and _is_header_value(match["scheme"] or "", match["value"]):
            yield secret_match("authorization-header", match, "value")
        at = lowered.find("authorization", at + 13)
    at = lowered.find("bearer")
    while at >= 0:
        match = _BEARER.match(text, at)
        if match is not None and is_token_value(match["value"], quoted=False):
            yield secret_match("bearer-token", match, "value")
        at = lowered.find("bearer", at + 6)


def _is_header_value(scheme: str, value: str) -> bool:
    if scheme.lower() == "basic" and len(value) >= _LEAST_BASIC_CHARS:
        return not is_reference(value, quoted=False) and not is_placeholder(value)
    if scheme.lower() in _TOKEN_SCHEMES and any(map(str.isdigit, value)):  # also a short one
        return any(map(str.isalpha, value)) and is_password_value(value, quoted=False)
    return is_token_value(value, quoted=False, least_chars=8) or is_uuid(value)


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
            yield SecretMatch("curl-user", start, start + len(bare), match.start(), match.end())
    elif is_password_value(user, quoted=True, least_chars=8):
        yield SecretMatch("curl-user", start, start + len(user), match.start(), match.end())


def _find_quoted_passwords(text: str, lowered: str) -> Iterator[SecretMatch]:
    for opening in ("identified", "password"):
        at = lowered.find(opening)
        while at >= 0:
            match = _SQL_VALUE.match(text, at)
            reach = max(0, at - _SQL_REACH_CHARS)
            if match is not None and _SQL_VERB.search(lowered, reach, at + len(opening)):
                if match["value"] and _is_credential(match["value"]):
                    yield secret_match("sql-password", match, "value")
                elif match["bare"] and is_password_value(match["bare"], quoted=True):
                    yield secret_match("sql-password", match, "bare")
            at = lowered.find(opening, at + len(opening))
    if "login" in lowered and "machine" in lowered:
        for match in _NETRC.finditer(text):
            if _is_credential(match["value"]):
                yield secret_match("netrc-password", match, "value")


# Where a name may promise a secret; the rest of the name is read by `_ASSIGNMENT`.
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
)
_QUOTED = {
    quote: re.compile(rf"(?:[^{quote}\\\r\n]|\\[^\r\n]){{1,4000}}+(?={quote})") for quote in "\"'`"
}
_QUOTED_IN_ESCAPES = {quote: re.compile(rf"[^{quote}\\\r\n]{{1,4000}}+(?=\\)") for quote in "\"'`"}
_BARE = re.compile(r"[!#-&*-+\--/0-9?@A-Z^_a-z~.({\[$%]{1,1000}+={0,2}")
_BARE_LINE = re.compile(r"[^\s\"'`;<>\\]{1,1000}+")
_REST_OF_TOKEN = re.compile(r"[\w.~+/-]*+={0,2}", re.ASCII)
_PATTERN_CLASS = re.compile(r"[SwWdDs][+*{]")  # `token=\S+` of a search
_NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-. "
_MOST_NAME_CHARS = 48
_MOST_ARN_CHARS = 80
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


_HINTED = with_triggers(_HINTS)
_NAMES = trigger(parts=_HINTS)
_HAN_NAMES = one_of(_HAN_KINDS)


def find_assigned(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Every secret given to a name that promises one; `found` are the triggers in the text."""
    if not found & _NAMES and (lowered.isascii() or _HAN_NAMES.search(lowered) is None):
        return
    done = 0
    for at in _hints(lowered, found):
        match = None if at < done else _ASSIGNMENT.match(lowered, at)
        if match is None:
            continue
        kind = _promised(text, match)
        if kind is None:
            continue
        secret_match = _read_value(text, match, kind)
        if secret_match is not None:
            done = secret_match.end
            yield secret_match


def _hints(lowered: str, found: int) -> list[int]:
    """The ends of all hints, in order. A search for each is faster than one alternation."""
    ends: list[int] = []
    hints = [hint for hint, bit in _HINTED if found & bit]
    for hint in hints if lowered.isascii() else (*hints, *_HAN_KINDS):
        at = lowered.find(hint)
        while at >= 0:
            ends.append(at + len(hint))
            at = lowered.find(hint, at + len(hint))
    ends.sort()
    return ends


def _name_start(text: str, at: int) -> int:
    """Where the identifier that runs up to `at` begins."""
    lead = text[max(0, at - _MOST_NAME_CHARS) : at]
    return at - (len(lead) - len(lead.rstrip(_NAME_CHARS)))


def _promised(text: str, match: re.Match[str]) -> str | None:
    """What the name before the sign promises; a space is a sign only after a flag or `define`."""
    han = _HAN_KINDS.get(text[match.start() - 2 : match.start()])
    if han is not None:
        return han
    start = _name_start(text, match.start())
    if text[start - 1 : start] == ":" and "arn:" in text[max(0, start - _MOST_ARN_CHARS) : start]:
        return None  # `arn:aws:secretsmanager:…:secret:prod/db` names one
    name = text[start : match.end("tail")]
    if match["sign"].isspace():
        before, _, name = name.rpartition(" ")
        if not (name.startswith("-") or before.endswith(("define", "global"))):
            return None
    return kind_of_name(name)


def kind_of_name(name: str) -> str | None:
    """What a name promises: a password, a token, an access id, or nothing secret."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if any(word in _PUBLIC_WORDS for word in words[-3:]):
        return None
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
    if last == "login" and before[-1:] == ["sonar"]:  # SonarQube's property for a token
        return "token"
    if last == "key" and _is_secret_key(name, before):
        return "token"
    return None


def _is_secret_key(name: str, before: list[str]) -> bool:
    """Whether `…key` is a credential: qualified as one, or a constant of the environment."""
    if any(word in _KEY_QUALIFIERS or word in _ISSUERS for word in before[-2:]):
        return True
    constant = name.rpartition(" ")[2]
    return constant.isupper() and "_" in constant


def _read_value(text: str, match: re.Match[str], kind: str) -> SecretMatch | None:
    start = match.end()
    quote = match["quote"]
    if match["escape"] and not quote and _PATTERN_CLASS.match(text, start):
        return None
    value: re.Match[str] | None = None
    if quote:
        table = _QUOTED_IN_ESCAPES if match["escape"] else _QUOTED
        value = table[quote[0]].match(text, start)
    quoted = value is not None
    if value is None:
        value = _bare_value(text, match, start)
    if value is None:
        return None
    end = value.end()
    content = value.group()
    if not quoted:
        if content.endswith("..."):  # cut short by its writer
            return None
        content = content.rstrip(".,:!?)") if kind == "token" else content.rstrip(",;")
        end = start + len(content)
    if not _is_secret(content, kind, match, quoted=quoted):
        return None
    if not quoted and kind == "token":
        rest = _REST_OF_TOKEN.match(text, end)
        end = rest.end() if rest is not None and end - start >= 1000 else end
    rule = "assigned-password" if kind == "password" else "assigned-token"
    return SecretMatch(rule, start, end, _name_start(text, match.start()), end)


def _bare_value(text: str, match: re.Match[str], start: int) -> re.Match[str] | None:
    """A value without quotes: to the end of the word, in a shell's `NAME=value` to the space."""
    name_start = _name_start(text, match.start())
    if _is_alone(match) and (name_start == 0 or text[name_start - 1] == "\n"):
        return _BARE_LINE.match(text, start)
    return _BARE.match(text, start)


def _is_secret(value: str, kind: str, match: re.Match[str], *, quoted: bool) -> bool:
    prose = match["sign"].strip() == "is"
    if kind == "password":
        if prose and not any(c.isdigit() for c in value):
            return False
        if is_password_value(value, quoted=quoted, least_chars=4 if quoted else 6):
            return True
        return (quoted or _is_alone(match)) and is_chosen_words(value)
    if is_token_value(value, quoted=quoted):
        return not (kind == "id" and is_uuid(value))
    # a passphrase with a number, given to a constant that is called a secret
    named = match.string[: match.end("tail")].endswith("secret") and quoted
    return named and is_chosen_words(value) and value[-1].isdigit()


def _is_alone(match: re.Match[str]) -> bool:
    """Whether it is written as in an environment or a file of properties: `name=value`."""
    if match["sign"] == ">" or match["sign"].isspace():  # an element of XML, a flag
        return True
    return match["sign"] == "=" and not match["between"] and not match["gap"]
