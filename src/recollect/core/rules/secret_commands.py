"""Table of patterns that recognize a password by the command or the call that it is an argument of.
A pattern masks only the password, never the program, the option or the user next to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recollect.core.rules.secret_table import (
    BEFORE_ON_LINE,
    ON_LINE,
    Row,
    RowPlace,
    SearchedText,
    SecretMatch,
    by_keywords,
    find_by_rows,
)
from recollect.core.rules.secret_values import (
    is_chosen_words,
    is_literal,
    is_name,
    is_password_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PORTS = re.compile(r"[\d.]+(?::\d+)*(?:/\w+)?")


def _looks_chosen(value: str) -> bool:
    if not is_literal(value) or value.isdigit() or " " in value or _PORTS.fullmatch(value):
        return False
    if is_chosen_words(value):
        return True
    return is_password_value(value, quoted=True, least_chars=6) and not is_name(value)


_VALUE = (
    r"(?:\"(?P<double>[^\"\n]{1,200})\"|'(?P<single>[^'\n]{1,200})'"
    r"|(?P<bare>(?:[^\s\"'|;&<>]|&(?=\S)){1,200}))"
)
_LAST = rf"(?![>|&;]){_VALUE}[ \t]*(?=$|[\n;|&>])"
_ABOUT_SECRETS = re.compile(
    r"secret|securestring|passw|passphrase|token|credential|kinit|sudo[ \t]+-s|chpasswd"
    r"|\blogin\b|\bvault\b|api[-_]?key"
)
_RULE, _ARGUMENT = "command-password", r"[ \t=]{1,4}" + _VALUE


def _flag(programs: str, flag: str, value: str = _ARGUMENT, line: str = "") -> Row:
    near_pattern, sought_text = re.compile(line or programs), f" {flag.lower()}"
    pattern = f" {flag}{value}"
    return Row(
        _RULE,
        programs,
        pattern,
        is_literal,
        sought_text=sought_text,
        near_pattern=near_pattern,
        reach=BEFORE_ON_LINE,
    )


def _program(name: str, grammar: str) -> Row:
    return Row(_RULE, name, grammar, is_literal, RowPlace.COMMAND)


def _call(
    names: str,
    grammar: str,
    judge: Callable[[str], bool] = is_literal,
    near_pattern: re.Pattern[str] | None = None,
    reach: tuple[int, int] = (0, 0),
) -> Row:
    return Row(
        _RULE, names, grammar, judge, RowPlace.BEHIND, near_pattern=near_pattern, reach=reach
    )


def _pipe(programs: str, grammar: str, judge: Callable[[str], bool], reach: int) -> Row:
    pattern = rf"{grammar}[ \t]{{0,8}}\|[^\n|]{{0,{reach}}}\Z"
    return Row(_RULE, programs, pattern, judge, RowPlace.BEFORE, back=400)


# Options that take a password, by their programs. A colon joins the option and its value.
_OPTIONS = {
    "redis-cli": "-a",
    "psexec|certutil|influx|winrm|smbmap|crackmapexec|netexec|nxc |rdesktop": "-p",
    "ldap|generic-password|internet-password": "-w",
    "keytool|jarsigner": "-storepass -keypass -new",
    "openssl": "-k -K",
    "ssh-keygen": "-N -P",
    "plink|pscp|psftp|putty": "-pw",
    "snmp": "-A -X -c",
    "freerdp|mstsc|winrs": "/p: -p:",
    "signtool": "/p",
    "cmdkey|wmic": "/pass: /password:",
}
_LOGINS = (
    r"\bsshpass\b|\b(?:mongo\w*|cqlsh)\b|\bsecurity\b.{0,80}keychain|\b(?:docker|podman|skopeo"
    r"|buildah|helm|oras|nerdctl|crane|oc|cf|az)\b.{0,200}\blogin\b"
)
_ROWS = by_keywords(
    (
        # mysql asks for the password unless it directly follows `-p`
        _flag("mysql|mariadb|sshpass", "-p", r"(?![ \t])" + _VALUE),
        _flag("sshpass|mongo|cqlsh|login|keychain", "-p", line=_LOGINS),
        _flag(
            "sqlcmd|bcp|isql|osql|mosquitto_|ipmitool|zip",
            "-P",
            r"[ \t=]{0,4}" + _VALUE,
            r"\b(?:sqlcmd|bcp|isql|osql|mosquitto_\w+|ipmitool|(?:un)?zip)\b",
        ),
        *(
            _flag(programs, option, _VALUE if option[-1] == ":" else _ARGUMENT)
            for programs, options in _OPTIONS.items()
            for option in options.split()
        ),
        _program("smbclient", r" -U[ \t]{0,4}['\"]?[^\s%'\"]{1,80}%(?P<bare>[^\s'\"]{3,200})"),
        _program("lftp", r" -u[ \t]{0,4}['\"]?[^\s,'\"]{1,80},(?P<bare>[^\s'\"]{3,200})"),
        _program(
            "rabbitmqctl",
            r"(?:add_user|change_password|authenticate_user)[ \t]+\S{1,80}[ \t]+" + _VALUE,
        ),
        _program(
            "htpasswd -|htpasswd.exe -|htpasswd httpd",
            rf" -[a-zA-Z]{{0,4}}b[a-zA-Z]{{0,4}}(?:[ \t]+\S{{1,200}}){{1,5}}?[ \t]+{_LAST}",
        ),
        _program("mysqladmin|mariadb-admin|nmcli", r" password[ \t]+" + _VALUE),
        _program("samba-tool", r"user[ \t]+(?:create|add)[ \t]+[\w.@-]{1,80}[ \t]+(?!-)" + _VALUE),
        _program("rclone", r"obscure[ \t]+(?!-)" + _VALUE),
        _program(
            "openssl passwd",
            r"passwd(?:[ \t]+-(?:\d|[a-rt-z]\w+|salt[ \t]+\S{1,40})){0,4}[ \t]+(?!-)" + _VALUE,
        ),
        _program("pdftk", r" (?:user|owner)_pw[ \t]+" + _VALUE),
        _program("wpa_passphrase ", r" [\w.-]{1,40}[ \t]+" + _VALUE),
        Row(
            _RULE,
            "passwd|cryptsetup|kinit",
            r"<<<[ \t]*[\"']?(?:[\w.-]{1,32}:)?(?P<bare>[^\s\"']{4,200})",
            is_literal,
            sought_text="<<<",
            near_pattern=re.compile(r"(?:ht|ch|smb|vnc)passwd|\b(?:passwd|cryptsetup|kinit)\b"),
            reach=BEFORE_ON_LINE,
        ),
        _program(
            "net use|net.exe use",
            r"(?i)use(?=.{0,300}/u(?:ser)?:)(?:[ \t]+(?:[/\\]\S{1,200}|\"\\[^\"\n]{1,200}\""
            r"|https?:\S{1,200}|[a-z]:|\*(?=[ \t]))){1,6}"
            r"[ \t]+(?![/*\\]|\"\\|https?:|[a-z]:)" + _VALUE,
        ),
        _program("net user", r"user[ \t]+(?:/add[ \t]+)?[\w.-]{1,80}[ \t]+(?![/\\])" + _VALUE),
        _program("sqlplus", r"[ \t][\w.-]{1,80}/(?P<bare>[^\s@/\"']{3,200})@"),
        _program("kubeadm", r"[ \t]?--token[ \t=]{1,4}" + _VALUE),
        _program("7z |7za |7zr |rar ", r" -h?p(?![ \t])" + _VALUE),
        _program("schtasks", r"(?i) /r?p[ \t]+(?!/)" + _VALUE),
        _call(
            " --auth| --basic-auth| --user| --creds| --credentials| --http-user",
            r"[ \t=]{1,4}['\"]?[\w.@+-]{1,64}:(?P<bare>[^\s'\"]{6,200})",
            _looks_chosen,
        ),
        _call(
            "networkcredential|pscredential|passwordcredentials|passwordauthentication|basicauth",
            r"(?i)[\])]?(?:::new)?[ \t]{0,4}\(\s{0,40}[\"'][^\"'\n]{0,80}[\"']\s{0,4},\s{0,40}[\"']"
            r"(?P<bare>[^\"'\n]{4,200})[\"']",
        ),
        _call(
            "convertto-securestring",
            r"(?i)(?:[\s`]{1,40}-(?:string|asplain\w{0,4}|force)\b){0,3}"
            r"(?:[\s`]{1,40}(?![(-])|[ \t]?\((?=[\"']))" + _VALUE,
            near_pattern=re.compile("asplain"),
            reach=(60, 120),
        ),
        _pipe(
            "convertto-securestring|secret create|secret set|chpasswd",
            r"(?P<quote>[\"'])(?P<bare>[^\"'\n]{4,200})(?P=quote)",
            _looks_chosen,
            200,
        ),
        _pipe(
            "chpasswd",
            r"[\"' \t][\w.-]{1,80}:(?P<bare>[^\s\"':|\\]{4,200})(?:\\n)?[\"']?",
            is_literal,
            80,
        ),
        _call(
            " pass:|=pass:|'pass:|\"pass:",
            _VALUE,
            near_pattern=re.compile(r"\bopenssl\b|\bapksigner\b"),
            reach=BEFORE_ON_LINE,
        ),
        _call(" --value| --secret-string", _ARGUMENT, _looks_chosen, _ABOUT_SECRETS, ON_LINE),
        Row(
            _RULE,
            "echo|printf",
            r"(?:echo[ \t]+(?:-n[ \t]+)?|printf[ \t]+(?:[\"']?%s(?:\\n)?[\"']?[ \t]+)?)"
            rf"{_VALUE}(?=[ \t]*\|)",
            _looks_chosen,
            near_pattern=_ABOUT_SECRETS,
            reach=ON_LINE,
        ),
    )
)
COMMAND_BITS = _ROWS.bits


def find_in_commands(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every password in the arguments of a command or a call."""
    return find_by_rows(_ROWS, reading)
