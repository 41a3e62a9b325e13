"""Secrets known by the grammar around them: flags of commands, cookies, addresses, hashes.

Owns which flag of which program takes a password, which cookies open a session, which parameters
of an address sign it, and how password hashes are written. Never masks the program, the cookie's
name or the address. Always linear: every search goes forward from a literal, and what follows it
is bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recollect.rules.secret_contexts import SecretMatch, places_of
from recollect.rules.secret_values import (
    is_chosen_words,
    is_name,
    is_password_value,
    is_placeholder,
    is_reference,
    is_token_value,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

_COMMAND_CHARS = 2000
_VALUE = (
    r"(?:\"(?P<double>[^\"\n]{1,200})\"|'(?P<single>[^'\n]{1,200})'"
    r"|(?P<bare>(?:[^\s\"'|;&<>]|&(?=\S)){1,200}))"
)


def _flag(written: str, *, attached: bool = False) -> re.Pattern[str]:
    """A flag and its value, behind a space or an equals sign, or written to it."""
    joint = r"[ \t=]{0,4}" if attached else r"[ \t=]{1,4}"
    return re.compile(rf"[ \t]?(?:{written}){joint}{_VALUE}")


# A flag that takes a password, the programs whose flag it is, and how the value follows. `-p` of
# mysql only where it is written to its value: alone it asks for it.
_FLAGS: tuple[tuple[str, frozenset[str], re.Pattern[str], re.Pattern[str]], ...] = (
    (
        " -p",
        words("mysql mysqldump mysqladmin mysqlimport mariadb sshpass"),
        re.compile(r"\b(?:mysql|mariadb|sshpass)"),
        re.compile(rf" -p(?![ \t]){_VALUE}"),
    ),
    (
        " -p",
        words("sshpass mongo mongosh mongodump mongorestore cqlsh login"),
        re.compile(
            r"\bsshpass\b|\b(?:mongo\w*|cqlsh)\b"
            r"|\b(?:docker|podman|skopeo|buildah|helm|oras|nerdctl|crane|oc|cf"
            r"|az)\b.{0,200}\blogin\b"
        ),
        _flag("-p"),
    ),
    (" -a", words("redis"), re.compile(r"\bredis-cli\b"), _flag("-a")),
    (
        " -w",
        words("ldapsearch ldapmodify ldapadd ldapwhoami ldapdelete ldappasswd"),
        re.compile(r"\bldap\w+\b"),
        _flag("-w"),
    ),
    (
        " -P",
        words("sqlcmd bcp isql osql mosquitto ipmitool zip unzip"),
        re.compile(r"\b(?:sqlcmd|bcp|isql|osql|mosquitto_\w+|ipmitool|(?:un)?zip)\b"),
        _flag("-P", attached=True),
    ),
    *(
        (
            flag,
            words("snmpwalk snmpget snmpset snmpbulkwalk"),
            re.compile(r"\bsnmp\w+\b"),
            _flag(flag[1:]),
        )
        for flag in (" -A", " -X", " -c")
    ),
    (
        " /p:",
        words("xfreerdp freerdp mstsc"),
        re.compile(r"freerdp|mstsc"),
        re.compile(r" /p:" + _VALUE),
    ),
)
# A program, and its own grammar for a password.
_PROGRAMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("smbclient", re.compile(r" -U[ \t]{0,4}['\"]?[^\s%'\"]{1,80}%(?P<bare>[^\s'\"]{3,200})")),
    ("lftp", re.compile(r" -u[ \t]{0,4}['\"]?[^\s,'\"]{1,80},(?P<bare>[^\s'\"]{3,200})")),
    ("rabbitmqctl", re.compile(r"(?:add_user|change_password)[ \t]+\S{1,80}[ \t]+" + _VALUE)),
    ("net user", re.compile(r"user[ \t]+[\w.-]{1,80}[ \t]+(?![/\\])" + _VALUE)),
    ("sqlplus", re.compile(r"[ \t][\w.-]{1,80}/(?P<bare>[^\s@/\"']{3,200})@")),
    ("kubeadm", _flag("--token")),
    ("7z ", re.compile(r" -p(?![ \t])" + _VALUE)),
    ("openssl", re.compile(r"-pass(?:in|out)?[ \t]{1,4}['\"]?pass:(?P<bare>[^\s'\"]{3,200})")),
    ("vault login", re.compile(r"login[ \t]+(?:token=)?(?P<bare>[\w.-]{16,200})")),
)
_LOOKED_BACK_CHARS = 400
# `user:password` behind a flag.
_USER_AND_PASSWORD = re.compile(r"[ \t=]{1,4}['\"]?[\w.@+-]{1,64}:(?P<bare>[^\s'\"]{6,200})")
_USER_FLAGS = (
    *(" -a", " -u", " --auth", " --basic-auth", " --user", " --creds", " --credentials"),
    *(" --http-user", " --login", " --userpass"),
)
# A value that is handed to a command which speaks of secrets.
_HANDED: tuple[tuple[str, re.Pattern[str]], ...] = (
    *(
        (flag, re.compile(flag + r"[ \t=]{1,4}" + _VALUE))
        for flag in (" --value", " --body", " --secret-string", " --data", " --plaintext")
    ),
    ("echo ", re.compile(r"echo[ \t]+(?:-n[ \t]+)?" + _VALUE + r"(?=[ \t]*\|)")),
)
_HANDED_FOR = re.compile(
    r"secret|passw|passphrase|token|credential|kinit|sudo[ \t]+-S|chpasswd|\blogin\b|\bvault\b"
    r"|api[-_]?key",
    re.IGNORECASE,
)
_WIFI_CODE = re.compile(
    r"WIFI:(?:[^\n;]{1,80};){0,4}?P:(?P<bare>[^;\n]{4,100});"
    r"|WiFi\.begin\([\"'][^\"'\n]{1,80}[\"'], ?[\"'](?P<given>[^\"'\n]{6,200})[\"']"
)

_COOKIES = re.compile(
    r"(?i)(?:set-)?cookie[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?P<pairs>[^\r\n]{4,4000})"
)
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

_PARAMETER = re.compile(
    r"(?i)[?&;](?P<name>x-amz-signature|x-amz-security-token|x-goog-signature|x-oss-signature"
    r"|x-cos-signature|q-signature|signature|sig|hmac|hdnts|hdnea|__token__|key|apikey"
    r"|api_key|appid"
    r"|auth|authkey|auth_key|access_key|sas|st|passcode|pwd|code|state_token|invite|magic)"
    r"=(?P<value>[^&\s\"'<>\\`)\]]{8,2000})"
)
_SIGNING = words(
    "x-amz-signature x-amz-security-token x-goog-signature x-oss-signature x-cos-signature "
    "q-signature signature sig hmac hdnts hdnea __token__ sas auth authkey auth_key pwd"
)
_GRANT_REACH_CHARS = 400
_LINK = re.compile(
    r"(?i)://[^\s\"'<>?#]{1,200}?(?:invite|reset|verify|confirm|magic|activate|join|share|signin"
    r"|sso)[\w-]{0,20}(?:/|\?[\w-]{1,20}=)(?P<bare>[\w.~-]{24,400})"
)
_LINK_WORDS = words("invite reset verify confirm magic activate join share signin sso")

_CRYPT = re.compile(
    r"\$(?:1|5|6|7|8|9|14|y|gy|md5|sha1|apr1|2[abxy]?|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d+)?|P"
    r"|H|S)"
    r"\$[\w./+=,$-]{12,300}"
)
_NAMED_HASH = re.compile(
    r"(?<![\w$])(?:pbkdf2_sha\d+|bcrypt_sha256|scrypt|sha1|argon2)\$(?=[^\s\"']{0,40}\$)"
    r"[\w./+=,$:-]{20,300}|SCRAM-SHA-\d+\$\d+:[\w./+=]{8,80}\$[\w./+=:]{40,200}"
)
_LDAP_HASH = re.compile(
    r"\{(?:S?SHA(?:256|384|512)?|S?MD5|CRYPT|PBKDF2[\w-]{0,12})\}[\w./+=$]{16,300}"
)
_DUMPED = re.compile(r"(?m)^[\w.$\\-]{1,80}:\d{1,10}:(?P<bare>[0-9a-fA-F]{32}:[0-9a-fA-F]{32}):")
_PUTTY_KEY = re.compile(
    r"Private-Lines:[ \t]*\d{1,4}\r?\n(?P<bare>(?:[A-Za-z0-9+/=]{1,76}\r?\n?){1,200})"
)
_BOT = re.compile(r"(?<![A-Za-z0-9])(?:bot)?(?P<bare>\d{8,10}:[\w-]{35})(?![\w-])", re.ASCII)
# Patterns that need no closer look, and words of which a text that matches holds one.
_PLAIN_PATTERNS: tuple[tuple[frozenset[str], re.Pattern[str], str], ...] = (
    (words("putty"), _PUTTY_KEY, "private-key"),
    (words("wifi"), _WIFI_CODE, "configured-password"),
    (words("bot telegram"), _BOT, "telegram-token"),
)
# Words of ASCII letters, one of which a text holds where there is something to look for.
_PROGRAM_WORDS = words(
    "mysql mysqldump mysqladmin mysqlimport mariadb sshpass login mongo mongosh mongodump "
    "mongorestore mongoexport mongoimport cqlsh redis ldapsearch ldapmodify ldapadd ldapwhoami "
    "ldapdelete sqlcmd bcp isql osql mosquitto ipmitool zip unzip snmpwalk snmpget snmpset snmp "
    "xfreerdp freerdp mstsc smbclient lftp rabbitmqctl net sqlplus kubeadm openssl vault z"
)
_PARAMETER_WORDS = words(
    "signature sig hmac hdnts hdnea key apikey api appid auth authkey access sas st "
    "passcode pwd code state invite magic token"
)
_HANDED_FOR_WORDS = words(
    "secret secrets secretsmanager password passwords passwd passphrase token credential login "
    "credentials kinit sudo chpasswd vault apikey pass dbpassword securestring"
)
_PORTS = re.compile(r"[\d.]+(?::\d+)*(?:/\w+)?")


def find_by_grammar(text: str, lowered: str, held: AbstractSet[str]) -> Iterator[SecretMatch]:
    """Every secret known by the grammar around it; `lowered` is the text in lower case, `held` the
    words of ASCII letters in it."""
    if not held.isdisjoint(_PROGRAM_WORDS):
        yield from _find_flags(text, held)
        yield from _find_commands(text, lowered)
    yield from _find_handed(text, held)
    if "cookie" in held or "cookies" in held:
        yield from _find_cookies(text)
    if not held.isdisjoint(_PARAMETER_WORDS) and "=" in text:
        yield from _find_parameters(text, lowered)
    if not held.isdisjoint(_LINK_WORDS):
        for at in places_of(text, "://"):  # lets whoever has the link in
            match = _LINK.match(text, at)
            if match is not None and is_token_value(match["bare"], quoted=True, least_chars=24):
                yield _found("signed-address", match)
    yield from _find_hashes(text, held)
    for words_held, pattern, rule in _PLAIN_PATTERNS:
        if not held.isdisjoint(words_held) or (pattern is _BOT and "бот" in lowered):
            for match in pattern.finditer(text):
                yield _found(rule, match)


def _found(rule: str, match: re.Match[str], group: str = "") -> SecretMatch:
    """The group that matched last holds the secret, unless another is named."""
    held = group or match.lastgroup or "bare"
    return SecretMatch(rule, match.start(held), match.end(held), match.start(), match.end())


def _is_given(value: str) -> bool:
    """Whether what stands in a password's place is one, and no reference to one."""
    if len(value) < 4 or value.startswith(("-", "$", "<", "{", "%", "/", "[")):
        return False
    return not is_reference(value, quoted=True) and len(set(value)) > 2


def _find_flags(text: str, held: AbstractSet[str]) -> Iterator[SecretMatch]:
    for literal, hints, program, flag in _FLAGS:
        for at in () if held.isdisjoint(hints) else places_of(text, literal):
            match = flag.match(text, at)
            if match is None or not _is_given(match[match.lastgroup or "bare"]):
                continue
            since = _line_start(text, at)
            while since > 1 and text[since - 2 : since] == "\\\n":  # a line that goes on
                since = _line_start(text, since - 2)
                if at - since >= _LOOKED_BACK_CHARS:
                    break
            if program.search(text, since, at):
                yield _found("command-password", match)


def _find_commands(text: str, lowered: str) -> Iterator[SecretMatch]:
    for name, grammar in _PROGRAMS:
        for at in places_of(lowered, name):
            until = min(_command_end(text, at), at + _LOOKED_BACK_CHARS)
            match = grammar.search(text, at, until)
            if match is not None and _is_given(match[match.lastgroup or "bare"]):
                yield _found("command-password", match)


def _find_handed(text: str, held: AbstractSet[str]) -> Iterator[SecretMatch]:
    """Passwords behind flags of any program, and values given to commands about secrets."""
    for flag in [one for one in _USER_FLAGS if one in text]:
        for at in places_of(text, flag):
            match = _USER_AND_PASSWORD.match(text, at + len(flag))
            if match is not None and _is_made(match["bare"]):
                yield _found("command-password", match)
    if held.isdisjoint(_HANDED_FOR_WORDS):
        return
    for literal, grammar in [one for one in _HANDED if one[0] in text]:
        for at in places_of(text, literal):
            match = grammar.match(text, at)
            if match is not None and _is_made(match[match.lastgroup or "bare"]):
                since = _line_start(text, at)
                until = min(_command_end(text, match.end()), match.end() + _LOOKED_BACK_CHARS)
                if _HANDED_FOR.search(text, since, until):
                    yield _found("command-password", match)


def _is_made(value: str) -> bool:
    """Whether a value without a label of its own looks like a password."""
    if not _is_given(value) or value.isdigit() or " " in value or _PORTS.fullmatch(value):
        return False
    if is_chosen_words(value):
        return True
    return is_password_value(value, quoted=True, least_chars=6) and not is_name(value)


def _line_start(text: str, at: int) -> int:
    """Where the line begins, or how far back is looked."""
    since = max(0, at - _LOOKED_BACK_CHARS)
    return max(text.rfind("\n", since, at) + 1, since)


def _command_end(text: str, start: int) -> int:
    """Where a command ends: at the line's end, unless that is escaped."""
    limit = min(len(text), start + _COMMAND_CHARS)
    end = start
    while True:
        end = text.find("\n", end, limit)
        if end < 0:
            return limit
        if text[end - 1 : end] != "\\":
            return end
        end += 1


def _find_cookies(text: str) -> Iterator[SecretMatch]:
    for around, member in ((_COOKIES, _COOKIE_PAIR), (_COOKIE_MAP, _COOKIE_MEMBER)):
        for header in around.finditer(text):
            for match in member.finditer(text, *header.span("pairs")):
                if _opens_session(match["name"], match["value"]):
                    yield _found("session-cookie", match, "value")


def _opens_session(name: str, value: str) -> bool:
    if name.lower() in _COOKIE_ATTRIBUTES or is_reference(value, quoted=True):
        return False
    if is_placeholder(value):
        return False
    return bool(_SESSION_COOKIE.search(name)) or is_token_value(value, quoted=True, least_chars=20)


def _find_parameters(text: str, lowered: str) -> Iterator[SecretMatch]:
    """What signs an address, or is its key; a code only where it is exchanged for a token."""
    for match in _PARAMETER.finditer(text):
        name, value = match["name"].lower(), match["value"]
        if len(value) < 16 and name != "pwd":
            continue
        if name == "code":
            reach = lowered[
                max(0, match.start() - _GRANT_REACH_CHARS) : match.end() + _GRANT_REACH_CHARS
            ]
            if (
                "grant_type" not in reach
                and "client_secret" not in reach
                and "callback" not in reach
            ):
                continue
        signs = name in _SIGNING
        bare = value.replace("%", "")
        if is_token_value(bare, quoted=True) or (signs and not is_reference(value, quoted=True)):
            yield _found("signed-address" if signs else "address-key", match, "value")


def _find_hashes(text: str, held: AbstractSet[str]) -> Iterator[SecretMatch]:
    patterns = [_CRYPT] if "$" in text else []
    if not held.isdisjoint(("pbkdf", "bcrypt", "scrypt", "argon", "scram")):
        patterns.append(_NAMED_HASH)
    if not held.isdisjoint(("sha", "ssha", "md", "smd", "crypt", "pbkdf")) and "}" in text:
        patterns.append(_LDAP_HASH)
    for pattern in patterns:
        for match in pattern.finditer(text):
            if not is_placeholder(match[0]):
                yield SecretMatch("password-hash", *match.span(), *match.span())
    if ":::" in text:
        for match in _DUMPED.finditer(text):
            yield _found("password-hash", match)
