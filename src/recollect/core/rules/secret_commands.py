"""Secrets known by the grammar around them: flags of commands, calls, addresses, hashes.

Owns the rows: which flag of which program takes a password, which calls are given one, which
parameters of an address sign it, which lines of configuration set one, and how password hashes
are written. Never masks the program, the name or the address.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recollect.core.rules.secret_table import (
    BEFORE_ON_LINE,
    ON_LINE,
    Row,
    RowPlace,
    by_keywords,
    keys,
)
from recollect.core.rules.secret_values import (
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
    from collections.abc import Iterable

_LEAST_KEY_BITS = 3.5
_LEAST_TOKEN_CHARS = 20
_PORTS = re.compile(r"[\d.]+(?::\d+)*(?:/\w+)?")


def _is_given(value: str) -> bool:
    if len(value) < 4 or value.startswith(("-", "$", "<", "{", "%", "/", "[")):
        return False
    return not is_reference(value, quoted=True) and len(set(value)) > 2


def _is_made(value: str) -> bool:
    if not _is_given(value) or value.isdigit() or " " in value or _PORTS.fullmatch(value):
        return False
    if is_chosen_words(value):
        return True
    return is_password_value(value, quoted=True, least_chars=6) and not is_name(value)


def _is_configured(value: str) -> bool:
    return _is_given(value) and (not value.islower() or is_chosen_words(value))


def _is_key(value: str) -> bool:
    return is_token_value(value, quoted=True)


def _is_account_token(value: str) -> bool:
    return len(value) >= _LEAST_TOKEN_CHARS and _is_key(value) and not is_uuid(value)


def _is_signing_key(value: str) -> bool:
    return _is_key(value) or is_chosen_words(value)


def _is_long_token(value: str) -> bool:
    return is_token_value(value, quoted=True, least_chars=24)


def _is_shown(value: str) -> bool:
    return is_token_value(value, quoted=True, least_chars=16)


def _is_session(value: str) -> bool:
    if is_placeholder(value) or is_reference(value, quoted=True):
        return False
    return not is_name(value)


def _is_no_sample(value: str) -> bool:
    return not is_placeholder(value)


def _is_random_key(value: str) -> bool:
    return not is_placeholder(value) and entropy_bits(value) > _LEAST_KEY_BITS


_VALUE = (
    r"(?:\"(?P<double>[^\"\n]{1,200})\"|'(?P<single>[^'\n]{1,200})'"
    r"|(?P<bare>(?:[^\s\"'|;&<>]|&(?=\S)){1,200}))"
)


def _flag(programs: str, flag: str, joint: str = r"[ \t=]{1,4}", *, line: str = "") -> Row:
    return Row(
        "command-password",
        programs,
        rf" {flag}{joint}{_VALUE}",
        judge=_is_given,
        at=f" {flag.lower()}",
        near=re.compile(line or "|".join(rf"\b{one}" for one in keys(programs))),
        around=BEFORE_ON_LINE,
    )


def _program(name: str, grammar: str) -> Row:
    return Row("command-password", name, grammar, judge=_is_given, place=RowPlace.COMMAND)


_ABOUT_SECRETS = re.compile(
    r"secret|securestring|passw|passphrase|token|credential|kinit|sudo[ \t]+-s|chpasswd"
    r"|\blogin\b|\bvault\b|api[-_]?key"
)


def _handed(keyword: str, grammar: str) -> Row:
    return Row(
        "command-password", keyword, grammar, judge=_is_made, near=_ABOUT_SECRETS, around=ON_LINE
    )


# `-p` of mysql only where it is written to its value: alone it asks for it.
_FLAGS = (
    _flag("mysql|mariadb|sshpass", "-p", r"(?![ \t])"),
    _flag(
        "sshpass|mongo|cqlsh|login",
        "-p",
        line=r"\bsshpass\b|\b(?:mongo\w*|cqlsh)\b|\b(?:docker|podman|skopeo|buildah|helm|oras"
        r"|nerdctl|crane|oc|cf|az)\b.{0,200}\blogin\b",
    ),
    _flag("redis-cli", "-a"),
    _flag("ldap", "-w"),
    _flag(
        "sqlcmd|bcp|isql|osql|mosquitto_|ipmitool|zip",
        "-P",
        r"[ \t=]{0,4}",
        line=r"\b(?:sqlcmd|bcp|isql|osql|mosquitto_\w+|ipmitool|(?:un)?zip)\b",
    ),
    *(_flag("snmp", flag) for flag in ("-A", "-X", "-c")),
    _flag("doctl", "-t"),
    _flag("freerdp|mstsc", "/p:", "", line="freerdp|mstsc"),
)
_PROGRAMS = (
    _program("smbclient", r" -U[ \t]{0,4}['\"]?[^\s%'\"]{1,80}%(?P<bare>[^\s'\"]{3,200})"),
    _program("lftp", r" -u[ \t]{0,4}['\"]?[^\s,'\"]{1,80},(?P<bare>[^\s'\"]{3,200})"),
    _program("htpasswd", r" -\w{0,4}b\w{0,4}[ \t]+\S{1,200}[ \t]+\S{1,80}[ \t]+" + _VALUE),
    _program("rabbitmqctl", r"(?:add_user|change_password)[ \t]+\S{1,80}[ \t]+" + _VALUE),
    _program("net user", r"user[ \t]+[\w.-]{1,80}[ \t]+(?![/\\])" + _VALUE),
    _program("sqlplus", r"[ \t][\w.-]{1,80}/(?P<bare>[^\s@/\"']{3,200})@"),
    _program("kubeadm", r"[ \t]?--token[ \t=]{1,4}" + _VALUE),
    _program("openssl enc", r" -k[ \t]+" + _VALUE),
    _program("net use", r"/user:\S{1,100}[ \t]+(?!/)" + _VALUE),
    _program("7z ", r" -p(?![ \t])" + _VALUE),
    _program("rar ", r" -h?p(?![ \t])" + _VALUE),
    _program("openssl", r"-pass(?:in|out)?[ \t]{1,4}['\"]?pass:(?P<bare>[^\s'\"]{3,200})"),
    _program("vault login", r"login[ \t]+(?:token=)?(?P<bare>[\w.-]{16,200})"),
    _program("schtasks", r"(?i) /r?p[ \t]+(?!/)" + _VALUE),
    _program("psexec", r" -p[ \t]+" + _VALUE),
    _program("convertto-securestring", r"(?i)string[ \t]+(?:-String[ \t]+)?" + _VALUE),
    Row(
        "command-password",
        "echo",
        rf"echo[ \t]+(?:-n[ \t]+)?{_VALUE}[ \t]*\|[ \t]*(?:sudo[ \t]+-S"
        r"|sudo[ \t]+\S+[ \t]+--stdin|passwd[ \t]+--stdin|docker[ \t]+login|chpasswd|openssl"
        r"|gpg)",
        judge=_is_given,
    ),
)
_HANDED = (
    *(
        Row(
            "command-password",
            flags,
            r"[ \t=]{1,4}['\"]?[\w.@+-]{1,64}:(?P<bare>[^\s'\"]{6,200})",
            judge=_is_made,
            place=RowPlace.BEHIND,
        )
        for flags in (
            " -a| -u",
            " --auth| --basic-auth| --user| --creds| --credentials| --http-user",
            " --login| --userpass",
        )
    ),
    Row(
        "command-password",
        "convertto-securestring|secret create|secret set|chpasswd",
        r"(?P<quote>[\"'])(?P<bare>[^\"'\n]{4,200})(?P=quote)[ \t]{0,8}\|[^\n|]{0,200}\Z",
        judge=_is_made,
        place=RowPlace.BEFORE,
        back=400,
    ),
    *(
        _handed(flag, flag + r"[ \t=]{1,4}" + _VALUE)
        for flag in (" --value", " --body", " --secret-string", " --data", " --plaintext")
    ),
    Row(
        "command-password",
        "secret|passw|passphrase|token|credential|kinit|sudo|login|vault|api",
        r"<<<[ \t]{0,4}" + _VALUE,
        judge=_is_made,
        at="<<<",
        near=_ABOUT_SECRETS,
        around=ON_LINE,
    ),
    _handed("kv put ", r"kv put[ \t]+[^\s=]{1,200}[ \t]+(?=[^\s=]+(?:\s|$))" + _VALUE),
    _handed("encrypt_string ", r"encrypt_string[ \t]+" + _VALUE),
    _handed(" --secret ", r" --secret[ \t]+(?:[\w.:-]{2,80}[ \t]+(?!-))?" + _VALUE),
    _handed("echo", r"echo[ \t]+(?:-n[ \t]+)?" + _VALUE + r"(?=[ \t]*\|)"),
    _handed("printf", r"printf[ \t]+(?:[\"']?%s(?:\\n)?[\"']?[ \t]+)?" + _VALUE + r"(?=[ \t]*\|)"),
)

# Calls that are given a user and a password, or a key: what follows the word for it.
_WITH_USER = (
    r"s?(?:=|:)?[ \t]{0,2}[(\[]{1,2}[ \t\n]{0,8}[bru]?[\"'][^\"'\n/]{1,80}[\"'][ \t]{0,4},"
    r"[ \t\n]{0,8}[bru]?(?P<quote>[\"'])(?P<bare>[^\"'\n]{6,200})(?P=quote)"
)
_WITH_KEY = r"\([ \t\n]{0,8}b?(?P<quote>[\"'])(?P<bare>[^\"'\n]{12,400})(?P=quote)"
_SIGNED_WITH = (
    r"\w{0,12}\([^()\n\"']{0,120}(?:[\"'][\w-]{2,20}[\"'])?[^()\n\"']{0,20},[ \t]{0,4}b?"
    r"(?P<quote>[\"'])(?P<bare>[^\"'\n]{8,400})(?P=quote)"
)
_CALLS = tuple(
    Row("called-with", names, pattern, judge=judge, place=RowPlace.BEHIND)
    for names, pattern, judge in (
        ("login|auth|authenticate|signin|sign_in|wifi.begin", _WITH_USER, _is_made),
        ("credential|authentication", _WITH_USER, _is_made),
        ("client", _WITH_USER, _is_account_token),
        ("fernet|aes.new|hmac.new|hmac|createsecretkey|secretkeyspec", _WITH_KEY, _is_key),
        ("jwt.|jws.|createhmac|createcipheriv", _SIGNED_WITH, _is_signing_key),
    )
)

# Addresses: what signs one, is its key, or lets whoever has the link in.
_SIGNING = words(
    "x-amz-signature x-amz-security-token x-goog-signature x-oss-signature x-cos-signature "
    "q-signature signature sig hmac hdnts hdnea __token__ sas auth authkey auth_key pwd"
)
_KEYED = words("key apikey api_key appid access_key st passcode invite magic state_token")
_PARAMETER_VALUE = r"=(?P<value>[^&\s\"'<>\\`)\]]{8,2000})"


def _parameters(names: Iterable[str]) -> str:
    return "|".join(f"{sign}{name}=" for name in sorted(names) for sign in "?&;")


def _signs(match: re.Match[str], value: str) -> bool:
    if len(value) < 16 and match["name"].lower() != "pwd":
        return False
    return is_token_value(value.replace("%", ""), quoted=True) or not is_reference(
        value, quoted=True
    )


def _is_parameter_key(value: str) -> bool:
    return len(value) >= 16 and is_token_value(value.replace("%", ""), quoted=True)


_ADDRESSES = (
    Row(
        "signed-address",
        _parameters(_SIGNING),
        rf"(?i)[?&;](?P<name>{'|'.join(sorted(_SIGNING))}){_PARAMETER_VALUE}",
        check=_signs,
    ),
    Row(
        "address-key",
        _parameters(_KEYED),
        rf"(?i)[?&;](?:{'|'.join(sorted(_KEYED))}){_PARAMETER_VALUE}",
        judge=_is_parameter_key,
    ),
    Row(
        "address-key",
        _parameters(("code",)),
        rf"(?i)[?&;]code{_PARAMETER_VALUE}",
        judge=_is_parameter_key,
        near=re.compile("grant_type|client_secret|callback"),
        around=(400, 400),
    ),
    Row(
        "signed-address",
        "signature=",
        r"Signature=(?P<bare>[0-9a-f]{64}|[A-Za-z0-9%+/_~-]{40,700}={0,2})",
    ),
    Row(
        "signed-address",
        "invite|reset|verify|confirm|magic|activate|join|share|signin|sso",
        r"(?i)://[^\s\"'<>?#]{1,200}?(?:invite|reset|verify|confirm|magic|activate|join|share"
        r"|signin|sso)[\w-]{0,20}(?:/|\?[\w-]{1,20}=)(?P<bare>[\w.~-]{24,400})",
        judge=_is_long_token,
        at="://",
    ),
    Row("url-credentials", "oracle:", r"oracle:\w{2,8}:[\w.-]{1,64}/(?P<bare>[^\s@/\"']{3,200})@"),
    Row(
        "telegram-token",
        "bot|telegram|бот",
        r"(?a)(?P<bare>\d(?:(?<![A-Za-z0-9]\d)|(?<=bot\d))\d{7,9}:[\w-]{35})(?![\w-])",
        place=RowPlace.TEXT,
    ),
    Row(
        "session-cookie",
        "session=|_sid=|sess=|logged_in_|security=|remember_",
        r"(?i)(?:session|_sid|sess|(?:logged_in_|security|remember_)\w{0,64})"
        r"=(?P<value>[^;,\s\"'&<>\\]{40,4000})",
        judge=_is_session,
    ),
    Row(
        "session-cookie",
        "phpsessid|jsessionid|asp.net_sessionid|aspsessionid|connect.sid"
        "|laravel_session|ci_session",
        r"[\w.]{7,40}[\"']?[ \t]{0,4}(?:=|:)[ \t]{0,4}[\"']?"
        r"(?P<value>[^;,\s\"'&<>\\]{16,2000})",
        judge=_is_session,
    ),
    Row(
        "authorization-header",
        "nonce",
        r"\bresponse=\"?(?P<bare>[0-9a-f]{32,128})|\bnonce=\"?(?P<nonce>[0-9a-f]{32,128})",
        place=RowPlace.TEXT,
    ),
)

# Lines of configuration that name no value with a sign: `requirepass …`, `enable secret 5 …`.
_CONFIGURED = "configured-password"
_LINES = (
    Row(
        _CONFIGURED,
        (
            "requirepass|masterauth|auth-pass|snmp-server|rocommunity|rwcommunity"
            "|enable password|enable secret| privilege |wpa_passphrase|wpa-passphrase"
            "|key-string|pre-shared-key|chap password|tacacs-server|radius-server"
            "|authentication-key|wpa-psk|isakmp key|option key|message-digest-key"
            "|text-password|encrypted-password|neighbor |auth-user-pass|radius"
        ),
        r"(?i)[ \t>+#!-]{0,12}(?:[\w-]{1,24}[ \t]+){0,4}?"
        r"(?:requirepass|masterauth|sentinel auth-pass[ \t]+\S+|snmp-server[ \t]+community"
        r"|r[ow]community6?|enable[ \t]+(?:password|secret)"
        r"|user(?:name)?[ \t]+\S{1,64}[ \t]+(?:privilege[ \t]+\d+[ \t]+)?(?:password|secret)"
        r"|wpa[_-]passphrase|wpa-psk[ \t]+(?:ascii|hex)|key-string|isakmp[ \t]+key"
        r"|option[ \t]+key|pre-shared-key(?:[ \t]+(?:local|remote|ascii-text|hexadecimal))?"
        r"|chap[ \t]+password|(?:tacacs|radius)-server(?:[ \t]+host[ \t]+\S+)?[ \t]+key"
        r"|authentication-key[ \t]+\d+[ \t]+md5|message-digest-key[ \t]+\d+[ \t]+md5"
        r"|plain-text-password-value|encrypted-password|neighbor[ \t]+\S+[ \t]+password"
        r"|auth-user-pass:?[ \t]+\w+)[ \t]+(?:\d{1,2}[ \t]+)?[\"']?(?P<bare>[^\s\"']{4,200})",
        judge=_is_configured,
        place=RowPlace.LINE,
        at="pass|secret|masterauth|community|psk|key",
    ),
    Row(
        _CONFIGURED,
        " psk | xauth | eap ",
        r":[ \t]{0,4}(?:PSK|XAUTH|EAP|RSA)[ \t]{1,8}\"(?P<bare>[^\"\n]{4,200})\"",
        place=RowPlace.TEXT,
    ),
    Row(
        _CONFIGURED,
        ":54",
        r"(?m)(?:[\w.*-]{1,120}|\*):(?:\d{2,5}|\*):[^:\s]{1,80}:[^:\s]{1,80}:"
        r"(?P<bare>[^\s:]{4,200})$",
        judge=_is_given,
        place=RowPlace.LINE,
    ),
    Row(_CONFIGURED, "wifi:", r"WIFI:(?:[^\n;]{1,80};){0,4}?P:(?P<bare>[^;\n]{4,100});"),
    Row(
        "private-key",
        "private-lines:",
        r"Private-Lines:[ \t]*\d{1,4}\r?\n(?P<bare>(?:[A-Za-z0-9+/=]{1,76}\r?\n?){1,200})",
    ),
    Row(
        "shown-key",
        "cat |get-content ",
        r"(?i)(?:cat|get-content)[ \t][^\n|>]{0,120}?"
        r"(?:master\.key|secret|token|passw(?:or)?d|\.key|apikey|api[_-]key|credential)"
        r"[^\n|>]{0,40}\r?\n(?P<bare>\S{16,400})[ \t]*(?:\r?\n|$)",
        judge=_is_shown,
    ),
    Row(
        "aws-secret-key",
        "akia|asia",
        r"\bA(?:KIA|SIA)[A-Z0-9]{12,20}\b[^A-Za-z0-9]{1,12}(?:[\w ]{0,40}[^A-Za-z0-9]{1,12})?"
        r"(?<![A-Za-z0-9/+])(?P<bare>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        judge=_is_random_key,
    ),
)

_HASHES = tuple(
    Row("password-hash", keywords, pattern, judge=judge, place=place)
    for keywords, pattern, judge, place in (
        (
            "$",
            (
                r"\$\$?(?:1|5|6|7|8|9|14|y|gy|md5|sha1|apr1|2[abxy]?|argon2(?:id|i|d)|scrypt"
                r"|pbkdf2(?:-sha\d+)?|P|H|S)\\?\${1,2}[\w./+=,$\\-]{12,300}"
            ),
            _is_no_sample,
            RowPlace.TEXT,
        ),
        (
            "pbkdf2_sha|bcrypt_sha256$|scrypt$|sha1$|argon2$|scram-sha-",
            (
                r"(?<![\w$])(?:pbkdf2_sha\d+|bcrypt_sha256|scrypt|sha1|argon2)\$(?=[^\s\"']{0,40}\$)"
                r"[\w./+=,$:-]{20,300}|SCRAM-SHA-\d+\$\d+:[\w./+=]{8,80}\$[\w./+=:]{40,200}"
            ),
            _is_no_sample,
            RowPlace.AT,
        ),
        (
            "{sha|{ssha|{md5|{smd5|{crypt|{pbkdf2",
            r"\{(?:S?SHA(?:256|384|512)?|S?MD5|CRYPT|PBKDF2[\w-]{0,12})\}[\w./+=$]{16,300}",
            _is_no_sample,
            RowPlace.AT,
        ),
        (
            "::",
            (
                r"[\w.$-]{1,64}::[\w.-]{1,64}:"
                r"(?P<bare>[0-9a-fA-F]{16}:[0-9a-fA-F]{32}:[0-9a-fA-F]{32,2000})"
            ),
            None,
            RowPlace.LINE,
        ),
        ("md5", r"(?<![\w])md5(?P<bare>[0-9a-f]{32})(?![\w])", None, RowPlace.AT),
        (
            "::",
            r"[\w.$\\-]{1,80}:\d{1,10}:(?P<bare>[0-9a-fA-F]{32}:[0-9a-fA-F]{32}):",
            None,
            RowPlace.LINE,
        ),
    )
)

COMMANDS = by_keywords((*_FLAGS, *_PROGRAMS, *_HANDED, *_CALLS, *_ADDRESSES, *_LINES, *_HASHES))
