"""Secrets that are known by the name they are given: `DB_PASSWORD=…`, `"apiKey": "…"`.

Owns which names promise a credential and how a value is written after them (source code,
JSON inside JSON, YAML, XML, shell, flags, prose, Chinese). Never masks a name, and leaves to
`secret_values` whether the value is one. Always linear: a name is bounded, a value that is
not masked is read up to a bound, and nothing inside a masked value is looked at again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recollect.rules.secret_contexts import Found
from recollect.rules.secret_values import (
    is_chosen_words,
    is_password_value,
    is_token_value,
    is_uuid,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def find_assigned(text: str, lowered: str) -> Iterator[Found]:
    """Every secret given to a name that promises one."""
    done = 0
    for at in _hints(lowered):
        match = None if at < done else _ASSIGNMENT.match(lowered, at)
        if match is None:
            continue
        kind = _promised(text, match)
        if kind is None:
            continue
        found = _read_value(text, match, kind)
        if found is not None:
            done = found.end
            yield found


def _hints(lowered: str) -> list[int]:
    """The ends of all hints, in order. A search for each is faster than one alternation."""
    ends: list[int] = []
    for hint in _HINTS if lowered.isascii() else (*_HINTS, *_HAN_KINDS):
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


def _read_value(text: str, match: re.Match[str], kind: str) -> Found | None:
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
    return Found(rule, start, end, _name_start(text, match.start()), end)


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
