"""Tokens recognized by their format: the issuer's prefix, alphabet and length. Placeholders, keys
of public test code, and parts of base64 data are not tokens."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.core.rules.secret_table import (
    Row,
    RowPlace,
    SearchedText,
    SecretMatch,
    by_keywords,
    declare_token,
    find_by_rows,
)
from recollect.core.rules.secret_values import (
    is_filler,
    is_placeholder,
    is_published_sample,
    is_random,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


_ALNUM = "A-Za-z0-9"
_WORD = r"A-Za-z0-9_\-"
_HEX = "0-9a-f"
_BASE64 = r"A-Za-z0-9+/_\-"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_START = r"(?<![^\W_])"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFormat:
    """The format of one issuer's tokens."""

    name: str
    pattern: re.Pattern[str]
    prefixes: tuple[str, ...]
    common_body: str = ""
    """Pattern of the rest of the token, if many words begin with its prefixes."""
    public: bool = False
    """True if tokens may be in public code, where samples such as an alphabet are common."""


_NAMED = {"<alnum>": _ALNUM, "<word>": _WORD, "<hex>": _HEX, "<base64>": _BASE64, "<uuid>": _UUID}


def _read_format(line: str) -> TokenFormat:
    name, prefixes, body, *words = line.split()
    for class_name, signs in _NAMED.items():
        body = body.replace(class_name, signs)
    prefix_list = tuple(prefixes.split(","))
    starts = "|".join(map(re.escape, prefix_list))
    end = f"{_ALNUM}_" if "letters" in words else _WORD
    return TokenFormat(
        name=name,
        prefixes=prefix_list,
        pattern=re.compile(rf"(?:{starts})(?P<body>{body})(?![{end}])", re.ASCII),
        common_body=body if "common" in words else "",
        public="public" in words,
    )


_TABLE = Path(__file__).with_name("token_formats.txt").read_text("utf-8")
RUN_FORMATS: tuple[TokenFormat, ...] = tuple(
    _read_format(line) for line in _TABLE.splitlines() if not line.startswith("#")
)


_NOT_BASE64 = re.compile(r"[._~-]")
_FILE_ENDING = re.compile(r"\.(?:png|jpe?g|gif|svg|webp|ico|css|html?|js|map|woff2?|pdf|mp[34])\b")
_BLOB = re.compile(r"[A-Za-z0-9+/]{24}\Z")


def _is_live(match: re.Match[str], body: str, *, public: bool = False) -> bool:
    token, text, start = match.group(), match.string, match.start()
    is_sample = is_placeholder if public else is_filler
    if token.endswith("EXAMPLE") or is_sample(body) or is_published_sample(token):
        return False
    if _FILE_ENDING.match(text, match.end()):
        return False
    before = text[start - 1] if start else " "
    if before not in "+/" or _NOT_BASE64.search(token):
        return True
    return _BLOB.search(text, max(0, start - 25), start) is None


def _is_no_filler(value: str) -> bool:
    return not is_filler(value)


def _is_aws_secret(value: str) -> bool:
    return value.lower() != value != value.upper() and is_random(value) and not is_filler(value)


def _below_aws_id(secret: str) -> Row:
    """Return the rule of a secret whose only label is the id of its key, just before it."""
    start = r"(?:(?<![A-Za-z0-9+/])|(?<=\\[nrt]))"
    pattern = rf"(?s)A[KS]IA[A-Z0-9]{{16}}(?![A-Za-z0-9]).{{1,60}}?{start}{secret}"
    return Row("aws-secret-key", "akia|asia", pattern, judge=_is_aws_secret)


def _infix(name: str, keyword: str, run: str) -> Row:
    """Return the rule of a token whose distinctive characters are in its middle."""
    pattern = rf"(?a)(?<![\w.~-]){run}(?![{_WORD}])"
    return Row(name, keyword, pattern, place=RowPlace.TEXT, check=_is_live)


def _exact_rule(name: str, keyword: str, token: str) -> Row:
    """Return the rule of a token that contains characters other than `_WORD`."""
    return Row(name, keyword, f"(?a){token}", judge=_is_no_filler)


_ROWS = by_keywords(
    (
        _infix("azure-client-secret", "q~", r"[\w~.-]{3}\dQ~[\w~.-]{31,34}(?![.~])"),
        _infix("terraform-token", ".atlasv1.", rf"[{_ALNUM}]{{14}}\.atlasv1\.[{_WORD}]{{60,80}}"),
        _infix("maxmind-key", "_mmk", rf"[{_ALNUM}]{{6}}_[{_ALNUM}]{{29}}_mmk"),
        _infix("newrelic-key", "nral", r"(?:[a-z]{2}\d\dx*)?[0-9a-f]{32,36}(?:FFFF)?NRAL"),
        _infix("mailchimp-key", "-us", r"[0-9a-f]{32}-us\d{1,2}"),
        _exact_rule("google-oauth", "1//0", rf"{_START}1//0[{_WORD}]{{40,120}}(?![{_WORD}])"),
        _exact_rule(
            "slack-webhook",
            "hooks.slack.com/",
            rf"{_START}hooks\.slack\.com/"
            r"(?P<value>(?:services|workflows|triggers)/[\w/-]{20,120})",
        ),
        Row(
            "fly-token",
            "fm1a_|fm1r_|fm2_",
            rf"(?a){_START}fm(?:1[ar]|2)_[{_BASE64}]{{80,}}+={{0,3}}",
            place=RowPlace.TEXT,
            judge=_is_no_filler,
        ),
        _below_aws_id(r"(?P<value>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])"),
        _below_aws_id(
            r"[A-Za-z0-9+/]{40}[^A-Za-z0-9+/]{1,40}+(?P<value>[A-Za-z0-9+/]{100,2000}+={0,2})"
        ),
        _exact_rule("wallet-key", "xprv", rf"{_START}xprv[1-9A-Za-z]{{90,120}}(?!\w)"),
        _exact_rule("nostr-key", "nsec1", rf"{_START}nsec1[a-z0-9]{{58}}(?!\w)"),
        _exact_rule(
            "tailscale-key",
            "tskey-",
            rf"{_START}tskey-[a-z]{{2,12}}-[{_ALNUM}]{{6,40}}-[{_ALNUM}]{{16,64}}",
        ),
        _exact_rule("mapbox-token", "sk.eyj", rf"{_START}sk\.eyJ[\w-]{{20,400}}\.[\w-]{{16,64}}"),
        _exact_rule(
            "jenkins-secret",
            "{aqaaabaaaa",
            rf"\{{(?P<value>AQAAABAAAA[{_BASE64}]{{16,2000}}={{0,2}})\}}",
        ),
        _exact_rule(
            "discord-webhook", "/api/webhooks/", r"/api/webhooks/(?P<value>\d{15,22}/[\w-]{50,80})"
        ),
        _exact_rule(
            "teams-webhook",
            ".webhook.office.com/",
            r"\.webhook\.office\.com/(?P<value>webhookb2/[\w@/-]{60,240})",
        ),
    )
)

_LEAD_CHARS = 64
_BY_FIRST: dict[str, list[TokenFormat]] = defaultdict(list)
_rests_of_first: dict[str, set[str]] = defaultdict(set)
for _one in RUN_FORMATS:
    for _prefix in _one.prefixes:
        if _one not in _BY_FIRST[_prefix[0]]:
            _BY_FIRST[_prefix[0]].append(_one)
        _rests_of_first[_prefix[0]].add(re.escape(_prefix[1:]) + _one.common_body)
_OPENINGS = "|".join(  # grouped by the first character, so that few are tried
    f"{first}(?:{'|'.join(sorted(rests, reverse=True))})"
    for first, rests in sorted(_rests_of_first.items())
)
# A token may follow an escape directly: `\\n` of JSON, `%3D` of a URL, a terminal color.
_RUN = declare_token(
    re.compile(rf"(?:[nrt]|[0-9a-fA-F]{{2}}|[0-9]{{1,2}}m)?(?:{_OPENINGS})", re.ASCII).match
) | declare_token(re.compile(rf"[^{_ALNUM}_](?:{_OPENINGS})", re.ASCII).search)
_START_OF_TEXT = re.compile(rf"(?=(?:{_OPENINGS}))", re.ASCII)
_STARTS = re.compile(
    r"\W(?<!\w-)(?<!\w--)"
    r"(?:(?<=\\)[nrt]|(?<=%)[0-9a-fA-F]{2}|(?<=\x1b\[)[0-9]{1,2}m)?"
    rf"(?=(?:{_OPENINGS}))",
    re.ASCII,
)
_JOINED = re.compile(rf"[.~-]+(?=(?:{_OPENINGS}))", re.ASCII)  # a token directly after another
# Tokens that begin with a number: the text after it, the token's maximum length, the pattern of the
# rest.
_NUMBERED = (
    ("facebook-token", "|", 17, re.compile(rf"\|(?<=[0-9]{{13}}\|)[{_WORD}]{{27}}(?![{_WORD}])")),
    ("telegram-token", ":AA", 10, re.compile(rf":AA(?<=\d{{8}}:AA)[{_WORD}]{{33}}(?![{_WORD}])")),
)


def find_tokens(reading: SearchedText) -> Iterator[SecretMatch]:
    text, done = reading.text, 0
    starts = [_START_OF_TEXT.match(text), *_STARTS.finditer(text)] if reading.found & _RUN else []
    for offset in [start.end() for start in starts if start is not None]:
        while offset >= done:
            for token_format in _BY_FIRST[text[offset]]:
                match = token_format.pattern.match(text, offset)
                if match is None:
                    continue
                done = max(done, match.end())
                if _is_live(match, match["body"], public=token_format.public):
                    # Signs directly before the token, such as dots, belong to the match.
                    lead = text[max(0, offset - _LEAD_CHARS) : offset]
                    first = offset - len(lead) + len(lead.rstrip(".~+/-"))
                    yield SecretMatch(token_format.name, *match.span(), first, match.end())
            separator = _JOINED.match(text, done) if done > offset else None
            if separator is None:
                break
            offset = separator.end()
    yield from find_by_rows(_ROWS, reading)
    for name, sign, most_digits, pattern in _NUMBERED:
        for number_end in pattern.finditer(text) if sign in text else ():
            lead = text[max(0, number_end.start() - most_digits) : number_end.start()]
            start = number_end.start() - len(lead) + len(lead.rstrip("0123456789"))
            if not is_filler(text[start : number_end.end()]):
                yield SecretMatch(name, start, number_end.end(), start, number_end.end())
