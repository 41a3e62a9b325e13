"""Secrets known by the grammar around them: flags of commands, cookies, addresses, hashes.

Owns which flag of which program takes a password, which cookies open a session, which parameters
of an address sign it, and how password hashes are written. Never masks the program, the cookie's
name or the address. Always linear: every search goes forward from a literal, and what follows it
is bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recollect.rules.secret_contexts import SecretMatch, places_of, secret_match
from recollect.rules.secret_triggers import held, trigger, with_triggers
from recollect.rules.secret_values import (
    entropy_bits,
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
_FLAGS: tuple[tuple[str, int, re.Pattern[str], re.Pattern[str]], ...] = (
    (
        " -p",
        trigger(parts=("mysql", "mariadb", "sshpass")),
        re.compile(r"\b(?:mysql|mariadb|sshpass)"),
        re.compile(rf" -p(?![ \t]){_VALUE}"),
    ),
    (
        " -p",
        trigger(parts=("sshpass", "mongo", "cqlsh", "login")),
        re.compile(
            r"\bsshpass\b|\b(?:mongo\w*|cqlsh)\b"
            r"|\b(?:docker|podman|skopeo|buildah|helm|oras|nerdctl|crane|oc|cf"
            r"|az)\b.{0,200}\blogin\b"
        ),
        _flag("-p"),
    ),
    (" -a", trigger("redis"), re.compile(r"\bredis-cli\b"), _flag("-a")),
    (
        " -w",
        trigger(parts=("ldap",)),
        re.compile(r"\bldap\w+\b"),
        _flag("-w"),
    ),
    (
        " -P",
        trigger("sqlcmd bcp isql osql mosquitto ipmitool zip unzip"),
        re.compile(r"\b(?:sqlcmd|bcp|isql|osql|mosquitto_\w+|ipmitool|(?:un)?zip)\b"),
        _flag("-P", attached=True),
    ),
    (
        " -A",
        trigger(parts=("snmp",)),
        re.compile(r"\bsnmp\w+\b"),
        _flag("-A"),
    ),
    (
        " -X",
        trigger(parts=("snmp",)),
        re.compile(r"\bsnmp\w+\b"),
        _flag("-X"),
    ),
    (
        " -c",
        trigger(parts=("snmp",)),
        re.compile(r"\bsnmp\w+\b"),
        _flag("-c"),
    ),
    (" -t", trigger("doctl"), re.compile(r"\bdoctl\b"), _flag("-t")),
    (
        " /p:",
        trigger(parts=("freerdp", "mstsc")),
        re.compile(r"freerdp|mstsc"),
        re.compile(r" /p:" + _VALUE),
    ),
)
# A program, and its own grammar for a password.
_PROGRAMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("smbclient", re.compile(r" -U[ \t]{0,4}['\"]?[^\s%'\"]{1,80}%(?P<bare>[^\s'\"]{3,200})")),
    ("lftp", re.compile(r" -u[ \t]{0,4}['\"]?[^\s,'\"]{1,80},(?P<bare>[^\s'\"]{3,200})")),
    ("htpasswd", re.compile(r" -\w{0,4}b\w{0,4}[ \t]+\S{1,200}[ \t]+\S{1,80}[ \t]+" + _VALUE)),
    ("rabbitmqctl", re.compile(r"(?:add_user|change_password)[ \t]+\S{1,80}[ \t]+" + _VALUE)),
    ("net user", re.compile(r"user[ \t]+[\w.-]{1,80}[ \t]+(?![/\\])" + _VALUE)),
    ("sqlplus", re.compile(r"[ \t][\w.-]{1,80}/(?P<bare>[^\s@/\"']{3,200})@")),
    ("kubeadm", _flag("--token")),
    ("openssl enc", re.compile(r" -k[ \t]+" + _VALUE)),
    ("net use", re.compile(r"/user:\S{1,100}[ \t]+(?!/)" + _VALUE)),
    ("7z ", re.compile(r" -p(?![ \t])" + _VALUE)),
    ("rar ", re.compile(r" -h?p(?![ \t])" + _VALUE)),
    ("openssl", re.compile(r"-pass(?:in|out)?[ \t]{1,4}['\"]?pass:(?P<bare>[^\s'\"]{3,200})")),
    ("vault login", re.compile(r"login[ \t]+(?:token=)?(?P<bare>[\w.-]{16,200})")),
    ("schtasks", re.compile(r"(?i) /r?p[ \t]+(?!/)" + _VALUE)),
    ("psexec", re.compile(r" -p[ \t]+" + _VALUE)),
    ("convertto-securestring", re.compile(r"(?i)string[ \t]+(?:-String[ \t]+)?" + _VALUE)),
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
    ("<<<", re.compile(r"<<<[ \t]{0,4}" + _VALUE)),
    ("kv put ", re.compile(r"kv put[ \t]+[^\s=]{1,200}[ \t]+(?=[^\s=]+(?:\s|$))" + _VALUE)),
    ("encrypt_string ", re.compile(r"encrypt_string[ \t]+" + _VALUE)),
    (" --secret ", re.compile(r" --secret[ \t]+(?:[\w.:-]{2,80}[ \t]+(?!-))?" + _VALUE)),
    ("echo ", re.compile(r"echo[ \t]+(?:-n[ \t]+)?" + _VALUE + r"(?=[ \t]*\|)")),
    (
        "printf ",
        re.compile(r"printf[ \t]+(?:[\"']?%s(?:\\n)?[\"']?[ \t]+)?" + _VALUE + r"(?=[ \t]*\|)"),
    ),
)
_PIPED_TEXT = re.compile(r"(?P<quote>[\"'])(?P<bare>[^\"'\n]{4,200})(?P=quote)[ \t]{0,8}\Z")
_TAKERS = with_triggers(("convertto-securestring", "secret create", "secret set", "chpasswd"))
_HANDED_FOR = re.compile(
    r"secret|securestring|passw|passphrase|token|credential|kinit|sudo[ \t]+-S|chpasswd"
    r"|\blogin\b|\bvault\b"
    r"|api[-_]?key",
    re.IGNORECASE,
)
# Calls that are given a user and a password, or a key: what follows the word for it.
_CALLED_WITH_USER = re.compile(
    r"s?(?:=|:)?[ \t]{0,2}["
    r"(\[]{1,2}[ \t\n]{0,8}[bru]?[\"'][^\"'\n/]{1,80}[\"'][ \t]{0,4},[ \t\n]{0,8}"
    r"[bru]?(?P<quote>[\"'])(?P<bare>[^\"'\n]{6,200})(?P=quote)"
)
_USER_CALLS = (
    *("login", "auth", "authenticate", "signin", "sign_in", "wifi.begin", "credential"),
    *("authentication",),
)
_CALLED_WITH_KEY = re.compile(
    r"\([ \t\n]{0,8}b?(?P<quote>[\"'])(?P<bare>[^\"'\n]{12,400})(?P=quote)"
)
_CLIENT_CALLS = ("client",)
_KEY_CALLS = ("fernet", "aes.new", "hmac.new", "hmac", "createsecretkey", "secretkeyspec")
_SIGNED_WITH = re.compile(
    r"\w{0,12}\([^()\n\"']{0,120}(?:[\"'][\w-]{2,20}[\"'])?[^()\n\"']{0,20},[ \t]{0,4}b?"
    r"(?P<quote>[\"'])"
    r"(?P<bare>[^\"'\n]{8,400})(?P=quote)"
)
_SIGNING_CALLS = ("jwt.", "jws.", "createhmac", "createcipheriv")
_CALL_WORDS = trigger(
    "login auth authenticate signin wifi basicauth httpbasicauth credential credentials "
    "networkcredential authentication passwordauthentication usernamepasswordcredentials fernet "
    "aes hmac createsecretkey secretkeyspec jwt jws createhmac createcipheriv"
)
_DIGEST = re.compile(
    r"\bresponse=\"?(?P<bare>[0-9a-f]{32,128})|\bnonce=\"?(?P<nonce>[0-9a-f]{32,128})"
)
_ORACLE = re.compile(r"oracle:\w{2,8}:[\w.-]{1,64}/(?P<bare>[^\s@/\"']{3,200})@")
_WIFI_CODE = re.compile(r"WIFI:(?:[^\n;]{1,80};){0,4}?P:(?P<bare>[^;\n]{4,100});")
_PIPED = re.compile(
    r"\becho[ \t]+(?:-n[ \t]+)?"
    + _VALUE
    + r"[ \t]*\|[ \t]*(?:sudo[ \t]+-S|sudo[ \t]+\S+[ \t]+--stdin"
    r"|passwd[ \t]+--stdin|docker[ \t]+login|chpasswd|openssl|gpg)"
)

# Lines of configuration that name no value with a sign: `requirepass …`, `enable secret 5 …`.
_DIRECTIVE = re.compile(
    r"(?i)[ \t>+#!-]{0,12}(?:[\w-]{1,24}[ \t]+){0,4}?"
    r"(?:requirepass|masterauth|sentinel auth-pass[ \t]+\S+|snmp-server[ \t]+community"
    r"|r[ow]community6?|enable[ \t]+(?:password|secret)"
    r"|user(?:name)?[ \t]+\S{1,64}[ \t]+(?:privilege[ \t]+\d+[ \t]+)?(?:password|secret)"
    r"|wpa[_-]passphrase|wpa-psk[ \t]+(?:ascii|hex)|key-string|isakmp[ \t]+key|option[ \t]+key"
    r"|pre-shared-key(?:[ \t]+(?:local|remote|ascii-text|hexadecimal))?|chap[ \t]+password"
    r"|(?:tacacs|radius)-server(?:[ \t]+host[ \t]+\S+)?[ \t]+key"
    r"|authentication-key[ \t]+\d+[ \t]+md5"
    r"|message-digest-key[ \t]+\d+[ \t]+md5|plain-text-password-value|encrypted-password"
    r"|neighbor[ \t]+\S+[ \t]+password|auth-user-pass:?[ \t]+\w+)"
    r"[ \t]+(?:\d{1,2}[ \t]+)?[\"']?(?P<bare>[^\s\"']{4,200})"
)
_DIRECTIVE_HINTS = with_triggers(
    (
        *("requirepass", "masterauth", "auth-pass", "snmp-server", "rocommunity", "rwcommunity"),
        *("enable password", "enable secret", " privilege ", "wpa_passphrase", "wpa-passphrase"),
        *("key-string", "pre-shared-key", "chap password", "tacacs-server", "radius-server"),
        *("authentication-key", "wpa-psk", "isakmp key", "option key", "message-digest-key"),
        *("text-password", "encrypted-password", "neighbor ", "auth-user-pass", "radius"),
    )
)
_DIRECTIVE_PARTS = with_triggers(("pass", "secret", "masterauth", "community", "psk", "key"))
"""Each directive holds one of them."""
_PSK = re.compile(r":[ \t]{0,4}(?:PSK|XAUTH|EAP|RSA)[ \t]{1,8}\"(?P<bare>[^\"\n]{4,200})\"")
_PGPASS = re.compile(
    r"(?m)^(?:[\w.*-]{1,120}|\*):(?:\d{2,5}|\*):[^:\s]{1,80}:[^:\s]{1,80}:(?P<bare>[^\s:]{4,200})$"
)
_SHOWN_KEY = re.compile(
    r"(?i)(?:cat|get-content)[ \t][^\n|>]{0,120}?"
    r"(?:master\.key|secret|token|passw(?:or)?d|\.key|apikey|api[_-]key|credential)[^\n"
    r"|>]{0,40}\r?\n"
    r"(?P<bare>\S{16,400})[ \t]*(?:\r?\n|$)"
)

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
_SESSION_NAMES = re.compile(
    r"(?i)(?:PHPSESSID|JSESSIONID|ASP\.NET_SessionId|ASPSESSIONID\w{0,20}|connect\.sid"
    r"|laravel_session|ci_session)"
    r"[\"']?[ \t]{0,4}(?:=|:)[ \t]{0,4}[\"']?(?P<value>[^;,\s\"'&<>\\]{16,2000})"
)

_LONG_SESSION = re.compile(r"\w{0,64}=(?P<value>[^;,\s\"'&<>\\]{40,4000})")
_LONG_SESSIONS = ("session=", "_sid=", "sess=", "logged_in_", "security=", "remember_")
_SESSION_HINTS = (
    *("phpsessid", "jsessionid", "net_sessionid", "aspsessionid", "connect.sid"),
    *("laravel_session", "ci_session"),
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
_SIGNATURE = re.compile(r"Signature=(?P<bare>[0-9a-f]{64}|[A-Za-z0-9%+/_~-]{40,700}={0,2})")
_LINK = re.compile(
    r"(?i)://[^\s\"'<>?#]{1,200}?(?:invite|reset|verify|confirm|magic|activate|join|share|signin"
    r"|sso)"
    r"[\w-]{0,20}(?:/|\?[\w-]{1,20}=)(?P<bare>[\w.~-]{24,400})"
)
_LINK_WORDS = trigger(
    parts=[
        "invite",
        "reset",
        "verify",
        "confirm",
        "magic",
        "activate",
        "join",
        "share",
        "signin",
        "sso",
    ]
)
_GRANT_REACH_CHARS = 400

_CRYPT = re.compile(
    r"\${1,2}(?:1|5|6|7|8|9|14|y|gy|md5|sha1|apr1|2[abxy]?|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d+)?|P"
    r"|H|S)"
    r"\\?\${1,2}[\w./+=,$\\-]{12,300}"
)
_NAMED_HASH = re.compile(
    r"(?<![\w$])(?:pbkdf2_sha\d+|bcrypt_sha256|scrypt|sha1|argon2)\$(?=[^\s\"']{0,40}\$)"
    r"[\w./+=,$:-]{20,300}|SCRAM-SHA-\d+\$\d+:[\w./+=]{8,80}\$[\w./+=:]{40,200}"
)
_LDAP_HASH = re.compile(
    r"\{(?:S?SHA(?:256|384|512)?|S?MD5|CRYPT|PBKDF2[\w-]{0,12})\}[\w./+=$]{16,300}"
)
_DUMPED = re.compile(r"(?m)^[\w.$\\-]{1,80}:\d{1,10}:(?P<bare>[0-9a-fA-F]{32}:[0-9a-fA-F]{32}):")
_CHALLENGE = re.compile(
    r"(?m)^[\w.$-]{1,64}::[\w.-]{1,64}:"
    r"(?P<bare>[0-9a-fA-F]{16}:[0-9a-fA-F]{32}:[0-9a-fA-F]{32,2000})"
)
_POSTGRES_HASH = re.compile(r"(?<![\w])md5(?P<bare>[0-9a-f]{32})(?![\w])")
_PUTTY_KEY = re.compile(
    r"Private-Lines:[ \t]*\d{1,4}\r?\n(?P<bare>(?:[A-Za-z0-9+/=]{1,76}\r?\n?){1,200})"
)
_AWS_PAIR = re.compile(
    r"\bA(?:KIA|SIA)[A-Z0-9]{12,20}\b[^A-Za-z0-9]{1,12}(?:[\w ]{0,40}[^A-Za-z0-9]{1,12})?"
    r"(?<![A-Za-z0-9/+])(?P<bare>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
)
_LEAST_KEY_BITS = 3.5
_LEAST_TOKEN_CHARS = 20
_BOT = re.compile(r"(?<![A-Za-z0-9])(?:bot)?(?P<bare>\d{8,10}:[\w-]{35})(?![\w-])", re.ASCII)
# Patterns that need no closer look, and words of which a text that matches holds one.
_PLAIN_PATTERNS: tuple[tuple[int, re.Pattern[str], str], ...] = (
    (trigger("nonce"), _DIGEST, "authorization-header"),
    (trigger("wifi"), _WIFI_CODE, "configured-password"),
    (trigger("oracle"), _ORACLE, "url-credentials"),
    (trigger("signature"), _SIGNATURE, "signed-address"),
    (trigger("bot telegram"), _BOT, "telegram-token"),
)
# Words of ASCII letters, one of which a text holds where there is something to look for.
_PROGRAM_WORDS = trigger(
    "schtasks psexec redis sqlcmd bcp isql osql mosquitto ipmitool zip unzip doctl smbclient lftp "
    "htpasswd rabbitmqctl net sqlplus kubeadm openssl vault convertto echo rar z",
    parts=[
        "mysql",
        "mariadb",
        "sshpass",
        "login",
        "mongo",
        "cqlsh",
        "ldap",
        "snmp",
        "freerdp",
        "mstsc",
    ],
)
_SESSION_WORDS = trigger(
    "phpsessid jsessionid sessionid sid laravel ci session sess wordpress roblosecurity"
)
_PARAMETER_WORDS = trigger(
    "signature sig hmac hdnts hdnea key apikey api appid auth authkey access sas st passcode pwd "
    "code state invite magic token"
)
_DIRECTIVE_WORDS = trigger(
    "requirepass masterauth sentinel snmp rocommunity rwcommunity privilege wpa psk chap tacacs "
    "radius xauth eap shared putty enable isakmp option ospf digest neighbor text encrypted md"
)
_KEY_FILE_WORDS = trigger("key secret token password passwd apikey credential credentials master")
_HANDED_FOR_WORDS = trigger(
    "secret secrets secretsmanager password passwords passwd passphrase token credential login "
    "credentials kinit sudo chpasswd vault apikey pass dbpassword securestring"
)
_CLIENTS = trigger(parts=("client",))
_COOKIE_WORDS = trigger("cookie cookies")
_SHOWING_WORDS = trigger("cat content")
_HASH_NAMES = trigger("pbkdf bcrypt scrypt argon scram")
_LDAP_HASH_NAMES = trigger("sha ssha md smd crypt pbkdf")
_MD = trigger("md")
_AWS_WORDS = trigger(parts=("akia", "asia"))
_PORTS = re.compile(r"[\d.]+(?::\d+)*(?:/\w+)?")


def find_by_grammar(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Every secret known by the grammar around it; `lowered` is the text in lower case, `found`
    are the triggers in it."""
    yield from _find_on_lines(text, lowered, found)
    yield from _find_handed(text, lowered, found)
    if found & (_CALL_WORDS | _CLIENTS) and ("(" in text or "[" in text):
        yield from _find_calls(text, lowered)
    if found & _COOKIE_WORDS:
        yield from _find_cookies(text, lowered)
    if found & _SESSION_WORDS:
        yield from _find_sessions(text, lowered)
    if found & _PARAMETER_WORDS and "=" in text:
        yield from _find_parameters(text, lowered)
    if found & _LINK_WORDS and "://" in text:
        yield from _find_links(text)
    yield from _find_hashes(text, found)
    yield from _find_shapes(text, lowered, found)


def _find_shapes(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """What a pattern alone tells."""
    for hints, pattern, rule in _PLAIN_PATTERNS:
        if found & hints or (pattern is _BOT and "бот" in lowered):
            for match in pattern.finditer(text):
                yield secret_match(rule, match, match.lastgroup or "bare")
    if found & _AWS_WORDS:
        for match in _AWS_PAIR.finditer(text):
            if not is_placeholder(match["bare"]) and entropy_bits(match["bare"]) > _LEAST_KEY_BITS:
                yield secret_match("aws-secret-key", match, "bare")


def _find_on_lines(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """What commands are given, what they print, and what lines of configuration set."""
    if found & _PROGRAM_WORDS:
        yield from _find_flags(text, found)
        yield from _find_commands(text, lowered)
    if found & _DIRECTIVE_WORDS or ":54" in text:
        yield from _find_directives(text, lowered, found)
    if found & _SHOWING_WORDS and found & _KEY_FILE_WORDS:
        yield from _find_shown_keys(text, lowered)


def _is_given(value: str) -> bool:
    """Whether what stands in a password's place is one, and no reference to one."""
    if len(value) < 4 or value.startswith(("-", "$", "<", "{", "%", "/", "[")):
        return False
    return not is_reference(value, quoted=True) and len(set(value)) > 2


def _find_flags(text: str, found: int) -> Iterator[SecretMatch]:
    for literal, hints, program, flag in _FLAGS:
        at = text.find(literal) if found & hints else -1
        while at >= 0:
            match = flag.match(text, at)
            if match is not None and _is_given(match[match.lastgroup or "bare"]):
                since = _line_start(text, at)
                while since > 1 and text[since - 2 : since] == "\\\n":  # a line that goes on
                    since = _line_start(text, since - 2)
                    if at - since >= _LOOKED_BACK_CHARS:
                        break
                if program.search(text, since, at):
                    yield secret_match("command-password", match, match.lastgroup or "bare")
            at = text.find(literal, at + len(literal))


def _find_commands(text: str, lowered: str) -> Iterator[SecretMatch]:
    for name, grammar in [one for one in _PROGRAMS if one[0] in lowered]:
        at = lowered.find(name)
        while at >= 0:
            until = min(_command_end(text, at), at + _LOOKED_BACK_CHARS)
            match = grammar.search(text, at, until)
            if match is not None and _is_given(match[match.lastgroup or "bare"]):
                yield secret_match("command-password", match, match.lastgroup or "bare")
            at = lowered.find(name, at + len(name))
    if "echo" in lowered and "|" in text:
        for match in _PIPED.finditer(text):
            if _is_given(match[match.lastgroup or "bare"]):
                yield secret_match("command-password", match, match.lastgroup or "bare")


def _find_piped(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """A quoted text that goes through a pipe to what takes a secret: `"…" | ConvertTo-…`."""
    for taker in held(_TAKERS, lowered, found):
        for at in places_of(lowered, taker):
            pipe = text.rfind("|", _line_start(text, at), at)
            if pipe < 0:
                continue
            match = _PIPED_TEXT.search(text, max(0, pipe - _LOOKED_BACK_CHARS), pipe)
            if match is not None and _is_made(match["bare"]):
                yield secret_match("command-password", match, "bare")


def _find_handed(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Passwords behind flags of any program, and values given to commands about secrets."""
    flags = [other for other in _USER_FLAGS if other in text] if " -" in text else ()
    for flag in flags:
        for at in places_of(text, flag):
            match = _USER_AND_PASSWORD.match(text, at + len(flag))
            if match is not None and _is_made(match["bare"]):
                yield secret_match("command-password", match, "bare")
    if not found & _HANDED_FOR_WORDS:
        return
    yield from _find_piped(text, lowered, found)
    for literal, grammar in [one for one in _HANDED if one[0] in text]:
        for at in places_of(text, literal):
            match = grammar.match(text, at)
            if match is not None and _is_made(match[match.lastgroup or "bare"]):
                since = _line_start(text, at)
                until = min(_command_end(text, match.end()), match.end() + _LOOKED_BACK_CHARS)
                if _HANDED_FOR.search(text, since, until):
                    yield secret_match("command-password", match, match.lastgroup or "bare")


def _find_calls(text: str, lowered: str) -> Iterator[SecretMatch]:
    """Passwords and keys among the arguments of a call."""
    for names, grammar in (
        (_USER_CALLS, _CALLED_WITH_USER),
        (_CLIENT_CALLS, _CALLED_WITH_USER),
        (_KEY_CALLS, _CALLED_WITH_KEY),
        (_SIGNING_CALLS, _SIGNED_WITH),
    ):
        for name in [other for other in names if other in lowered]:
            for at in places_of(lowered, name):
                match = grammar.match(text, at + len(name))
                if match is None:
                    continue
                value = match["bare"]
                given = (
                    _is_made(value) if names is _USER_CALLS else is_token_value(value, quoted=True)
                )
                if names is _CLIENT_CALLS:  # an account and its token
                    given = given and len(value) >= _LEAST_TOKEN_CHARS and not is_uuid(value)
                if given or (names is _SIGNING_CALLS and is_chosen_words(value)):
                    yield secret_match("called-with", match, "bare")


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


def _find_cookies(text: str, lowered: str) -> Iterator[SecretMatch]:
    for around, member in ((_COOKIES, _COOKIE_PAIR), (_COOKIE_MAP, _COOKIE_MEMBER)):
        done = 0
        for at in places_of(lowered, "cookie"):
            header = around.match(text, at) if at >= done else None
            if header is None:
                continue
            done = header.end()
            for match in member.finditer(text, *header.span("pairs")):
                if _opens_session(match["name"], match["value"]):
                    yield secret_match("session-cookie", match, "value")


def _find_sessions(text: str, lowered: str) -> Iterator[SecretMatch]:
    """Cookies that are known by their name alone."""
    matches = [
        _LONG_SESSION.match(text, at + len(literal) - literal.endswith("="))
        for literal in [other for other in _LONG_SESSIONS if other in lowered]
        for at in places_of(lowered, literal)
    ]
    if any(name in lowered for name in _SESSION_HINTS):
        matches += _SESSION_NAMES.finditer(text)
    for match in matches:
        if match is not None and not is_placeholder(match["value"]):
            value = match["value"]
            if not is_reference(value, quoted=True) and not is_name(value):
                yield secret_match("session-cookie", match, "value")


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
            yield secret_match("signed-address" if signs else "address-key", match, "value")


def _find_links(text: str) -> Iterator[SecretMatch]:
    """What lets whoever has the link in: a reset, an invitation, a magic link."""
    for at in places_of(text, "://"):
        match = _LINK.match(text, at)
        if match is not None and is_token_value(match["bare"], quoted=True, least_chars=24):
            yield secret_match("signed-address", match, "bare")


def _find_hashes(text: str, found: int) -> Iterator[SecretMatch]:
    patterns = [_CRYPT] if "$" in text else []
    if found & _HASH_NAMES:
        patterns.append(_NAMED_HASH)
    if found & _LDAP_HASH_NAMES and "}" in text:
        patterns.append(_LDAP_HASH)
    for pattern in patterns:
        for match in pattern.finditer(text):
            if not is_placeholder(match[0]):
                yield SecretMatch("password-hash", *match.span(), *match.span())
    if "::" in text:
        for match in _CHALLENGE.finditer(text):
            yield secret_match("password-hash", match, "bare")
    if found & _MD and "md5" in text:
        for match in _POSTGRES_HASH.finditer(text):
            yield secret_match("password-hash", match, "bare")
    if ":::" in text:
        for match in _DUMPED.finditer(text):
            yield secret_match("password-hash", match, "bare")


def _find_directives(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    if held(_DIRECTIVE_HINTS, lowered, found):
        starts = {
            lowered.rfind("\n", 0, at) + 1
            for part in held(_DIRECTIVE_PARTS, lowered, found)
            for at in places_of(lowered, part)
        }
        for match in filter(None, (_DIRECTIVE.match(text, start) for start in sorted(starts))):
            value = match["bare"]
            if _is_given(value) and (not value.islower() or is_chosen_words(value)):
                yield secret_match("configured-password", match, "bare")
    if " PSK " in text or " XAUTH " in text or " EAP " in text:
        for match in _PSK.finditer(text):
            yield secret_match("configured-password", match, "bare")
    if ":54" in text:
        for match in _PGPASS.finditer(text):
            if _is_given(match["bare"]):
                yield secret_match("configured-password", match, "bare")
    if "Private-Lines" in text:
        for match in _PUTTY_KEY.finditer(text):
            yield secret_match("private-key", match, "bare")


def _find_shown_keys(text: str, lowered: str) -> Iterator[SecretMatch]:
    """What a command prints of a file that is named as a key's."""
    for command in ("cat ", "get-content "):
        at = lowered.find(command)
        while at >= 0:
            match = _SHOWN_KEY.match(text, at)
            if match is not None and is_token_value(match["bare"], quoted=True, least_chars=16):
                yield secret_match("shown-key", match, "bare")
            at = lowered.find(command, at + len(command))
