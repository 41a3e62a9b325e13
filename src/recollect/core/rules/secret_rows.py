"""Table of patterns that recognize a secret by the syntax around it: URLs, headers, sentences.
A pattern masks only the secret, never the label or address next to it. The
rule for curl's `--user` follows after the table, because no single pattern matches it."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from recollect.core.rules.secret_table import (
    Row,
    RowPlace,
    SearchedText,
    SecretMatch,
    by_keywords,
    declare,
    find_by_rows,
    keys,
)
from recollect.core.rules.secret_values import (
    has_telling_word,
    is_chosen_words,
    is_literal,
    is_name,
    is_password_value,
    is_placeholder,
    is_random,
    is_reference,
    is_strong,
    is_token_value,
    is_uuid,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEHIND, _TEXT = RowPlace.BEHIND, RowPlace.TEXT
_BEFORE = RowPlace.BEFORE


def _is_no_sample(value: str) -> bool:
    return not is_placeholder(value)


def _is_configured(value: str) -> bool:
    return is_literal(value) and (not value.islower() or is_chosen_words(value))


def _is_long_token(value: str) -> bool:
    return is_token_value(value, quoted=True, least_chars=24) and not is_name(value)


def _is_parameter_key(value: str) -> bool:
    return len(value) >= 16 and is_token_value(value.replace("%", ""), quoted=True)


def _is_signature(value: str) -> bool:
    return _is_parameter_key(value) or not is_reference(value, quoted=True)


def _is_long_or_password(match: re.Match[str], value: str) -> bool:
    return len(value) >= 16 or match["name"].lower() == "pwd"


_BASIC_WORDS = words(
    "password pass passwd pwd secret token user username admin root test guest postgres mysql "
    "redis rabbitmq mongo example foo bar baz xxx yyy x y z changeme pw p ***"
)
_URL_TOKEN = re.compile(r"[\w.~%+-]{16,200}")
_TOKEN_SCHEMES = words("bearer token apikey")


def _is_url_user(value: str) -> bool:
    if value.isdigit():
        return len(value) >= 12
    return _URL_TOKEN.fullmatch(value) is not None and is_token_value(value, quoted=True)


def _is_credential(value: str) -> bool:
    if len(value) < 3 or value.lower() in _BASIC_WORDS or is_reference(value, quoted=True):
        return False
    return len(set(value)) > 1 and not value.startswith(("$", "<", "{", "[")) and value[-1] != ">"


def _is_header(match: re.Match[str], value: str) -> bool:
    scheme = (match["scheme"] or "").lower()
    if value.lower() == "credential=":
        return False  # a parameter's name: `AWS4-HMAC-SHA256 Credential=<id>`
    if scheme == "basic" and len(value) >= 8:
        return not is_reference(value, quoted=False) and not is_placeholder(value)
    if scheme in _TOKEN_SCHEMES and any(map(str.isdigit, value)):  # tokens may be short here
        return any(map(str.isalpha, value)) and is_password_value(value, quoted=False)
    return is_token_value(value, quoted=False, least_chars=8) or is_uuid(value)


def _is_sql_password(match: re.Match[str], value: str) -> bool:
    return _is_credential(value) if match["value"] else is_password_value(value, quoted=True)


MEASURED = re.compile(
    r"\b(?:policy|policies|length|len|size|count|limit|minimum|maximum|min|max|timeout|ttl|expiry"
    r"|expires?|expiration|lifetime|interval|attempts?|retries|requirements?|rules?|format|strength"
    r"|strategy|algorithm|encoder|hasher|version|column|field|index|prefix|suffix|file|path|name)\b",
    re.IGNORECASE,
)
"""A sentence with one of these words describes a password without containing it."""
COPULA = (
    r"(?P<verb>\b(?:(?:was|is|has been)\ (?:re)?(?:set|changed)\ to|ist\ (?:jetzt|nun)|wurde\ auf"
    r"|is|are|was|now|set to|changed to|will be|es|son|est|sont|c['’]est|ist|lautet"
    r"|lauten|sind|heißt|heisst|é|são|foi|è|sono|jest|to|là|är|olarak|это|стал|теперь"
    r"|(?:измен|смен|помен)\w{2,8}\ на|(?:от|для)\ [а-яё]{3,20}(?=\ [!-,.-~]{0,40}\d))\b"
    r"|[:=：→]|->|=>|[–—]|[はがを]|(?:现在|目前)?(?:[是为為]|(?:改|换|设|更新)(?:成了?|为))|[은는이가]"
    r"|입니다)"
)
OPENING = r"[\s\"'`「『“«‘(*_<]{0,6}"
TRAILING = ".,;:!?)]}>*_…"


def _is_alone(match: re.Match[str], value: str) -> bool:
    measure = MEASURED.search(match.string, match.start(), match.start("value"))
    return measure is None and is_strong(value)


def _is_code(match: re.Match[str], _: str) -> bool:
    if MEASURED.search(match.string, match.start(), match.start("value")):
        return False
    return not match["gap"].strip() or bool(match["verb"])  # not "the otp after 300000 ms"


def _is_set(match: re.Match[str], value: str) -> bool:
    if not is_strong(value):
        return False  # "set the login route to auth/login-v2" contains no password
    return not is_name(value) or bool(_PRONOUN.search(match[0])) or "passw" in match[0].lower()


# What people lock with a code, in the languages of the words for a code.
_LOCKS_IN_ENGLISH = (
    "door|gate|safe|vault|alarm|lock|locker|garage|keypad|entry|entrance|intercom|opener|elevator"
    "|shed|cabinet|padlock"
)
_LOCKS = (
    rf"(?<![\w-])(?:{_LOCKS_IN_ENGLISH}|(?:bike |door |time )?lock|lock ?box|key ?(?:box|safe)"
    r"|storage(?: unit)?|bike|suitcase|briefcase|strongbox|\w{0,9}tresor|\w{0,9}tür|\w{0,12}schloss"
    r"|alarmanlage|coffre(?:-fort)?|porte|portail|entrée|immeuble|alarme|cadenas|puerta|candado"
    r"|caja fuerte|alarma|cassaforte|porta|portone|cancello|cofre|portão|cadeado|kluis|deur|сейф\w?"
    r"|двер\w{1,2}|домофон\w?|подъезд\w?)"
)
_LOCKED = re.compile(rf"(?i){_LOCKS}(?:'?s)?[ -]?[^\W\d_]{{3,17}}\Z")
_LOCKED_BY = re.compile(
    r"(?i) (?:(?=[а-я])|(?:d['’]|(?:for|to|of|on|at|du|de|des|del|della|do|da|der|für|von"
    rf"|vom|zum|zur|от)\b)[\w '’-]{{0,30}}?){_LOCKS}"
    r"(?: (?:at|in|on|of|by|im|am)\b[\w ]{1,20})?[\s–—-]*\Z"
)
_KEYLESS = ("padlock", "digicode", "lockbox", "zahlenschloss", "fahrradschloss")
# Words that leave the next word, "code", its plain meaning: not `error code for the gate`.
_PLAIN_CODE = re.compile(
    r"(?i)(?:\A|[^\w\s]\s*|\n\s*|\b(?:the|a|my|our|your|his|her|their|new|old|current|access|entry"
    r"|security|secret|digit|is|and|le|la|der|die|den|el|il|o|lock)[ -])[^\W\d_]{3,17}\Z"
)
_CODE_ENDS = re.compile(r"[#*]?\s*(?:[^\w\s-]|\Z|\n|(?:for|at|to|on|in|and)\b)")


def _opens_lock(match: re.Match[str], _: str) -> bool:
    label = match.string[max(0, match.start() - 24) : match.start("gap")]
    gap, has_verb = match["gap"], match["verb"] is not None
    if label.lower().endswith("combinations") or match.string[match.start("value") - 1].isalpha():
        return False
    if not has_verb and _CODE_ENDS.match(match.string, match.end()) is None:
        return False
    if _LOCKED.search(label) or label.lower().endswith(_KEYLESS):
        return not gap.strip() or (has_verb and not gap.startswith(" of "))
    return _PLAIN_CODE.search(label) is not None and _LOCKED_BY.match(gap) is not None


_ACCOUNTS = keys(
    "admin|administrator|root|user|ubuntu|test|tester|deploy|demo|guest|postgres|pi|sa|qa|operator"
)
_LOGIN = re.compile(
    r"(?:\b(?:log-?ins?|(?:log|sign|logged|signed)[ -]?in|creds?|credentials|accounts?"
    r"|user(?:name)? ?/ ?pass\w*|acceso|accès|acesso|accesso|zugang\w*|identifiants?|anmeld\w*"
    r"|connexion|username|usuario|credencial\w*|credenzial\w*|basic auth)"
    r"|учетн|логин|доступ|账号|ログイン)"
    r"(?![^\n/]{0,80}\b(?:endpoints?|providers?|routes?|pages?|paths?|urls?|flows?|methods?|screens?"
    r"|types?|roles?|groups?|names?|ids?|files?|branch(?:es)?|regions?|owners?|tests?/|see)\b)"
)


def _is_of_user(match: re.Match[str], value: str) -> bool:
    """Return whether the value is the password of the account before it."""
    before = match.string[max(0, match.start() - 64) : match.start()]
    user, sign = match["user"] or "".join(before.split()[-1:]).strip("`\"'*"), match["sign"]
    if (
        user.lower() == value.lower()
        or _LOGIN.match(user.lower())
        or (sign == "/" and before.endswith(("/", ".", "-")))
    ):
        return False
    if value.lower() != value != value.upper() and is_random(value) and not is_name(value):
        return True
    joined = is_chosen_words(value) and sign.strip() in ("/", ":", "–", "—") and sign != "/"
    if user.lower() in _ACCOUNTS or "@" in user:
        looks_like_name = is_name(value) if sign == "/" else has_telling_word(value)
        return joined or (is_strong(value) and not looks_like_name)
    if joined and user.isalpha() and value[-1].isdigit():
        return True
    return is_strong(value) and not is_name(value)


def _is_used(value: str) -> bool:
    return is_strong(value) or is_chosen_words(value)


def _is_called_one(value: str) -> bool:
    return is_strong(value) and not is_name(value)


def _is_random(numbers: str) -> bool:
    """Return whether the numbers look like random bytes. Codes, sizes and ids are mostly small,
    sorted, or too large for a byte."""
    values = [
        int(number, 16 if "x" in number else 10) for number in re.findall(r"\w+", numbers.lower())
    ]
    large = sum(value > 127 for value in values)
    is_sorted = sorted(values) in (values, values[::-1])
    return (
        max(values) < 256 and len(set(values)) >= 8 and 4 * large >= len(values) and not is_sorted
    )


# A 16384-bit RSA key is 12,700 characters of PEM. Escapes and indentation make it longer.
_MOST_KEY_CHARS = 32_768
_KEY_LINE = re.compile(r"[A-Za-z0-9+/]{30,}")


def _has_key_line(body: str) -> bool:
    return _KEY_LINE.search(body) is not None


def _decodes_to_key(base64_text: str) -> bool:
    head = base64_text[:80]
    try:
        return b"PRIVATE KEY" in base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return False


_PRONOUN = re.compile(r"(?i)[ \t](?:it|mine|that)[ \t]+(?:to|as)[ \t]")
_POLICY = re.compile(r"password|passphrase|passwort|characters|login|account")
_USER = r"://(?P<user>[^\s:/?#@\"'<>`\\\[\](){}]{0,200}+)"
_BEHIND_USER = r":(?P<password>[^\s/\"'<>`\\]{1,200})"
_HOST = r"@(?=[\w\[$%{<-])"
SIGNING = (
    "__token__|auth|auth_key|authkey|hdnea|hdnts|hmac|pwd|q-signature|sas|sig|signature"
    "|x-amz-security-token|x-amz-signature|x-cos-signature|x-goog-signature|x-oss-signature"
)
KEYED = "access_key|api_key|apikey|appid|code|invite|key|magic|passcode|st|state_token"
_PARAMETER_CHAR = r"[^?;&\s\"'<>\\`)\]]"
# A value ends where the next of these parameters begins, so that no value is judged twice.
_NO_PARAMETER = rf"[?;](?!(?:{SIGNING}|{KEYED})=)"
_PARAMETER_VALUE = (
    rf"=(?P<value>(?:{_PARAMETER_CHAR}|{_NO_PARAMETER}){{8}}"
    rf"{_PARAMETER_CHAR}*+(?:{_NO_PARAMETER}{_PARAMETER_CHAR}*+)*+)"
)
_CODE_VALUE = (
    rf"(?i)(?=\D{{0,80}}+\d)(?P<gap>[\w'’ -]{{0,30}}?){COPULA}?[^\S\n]{{0,4}}{OPENING}(?:[A-Z]-)?"
    rf"(?P<value>\d{{4,10}}|\d{{3}}[ -]\d{{3}})(?![\w.-]*\d)"
)
_TOLD = "told-password"


def _parameters(names: str) -> str:
    return "|".join(f"{sign}{name}=" for name in keys(names) for sign in "?&;")


_PLACES = (
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
        r"(?i)authorization\\{0,3}[\"'`\]]{0,2}[ \t]{0,8}(?:[:=,]|=>)\s{0,8}"
        r"(?:[a-z]{1,8}[ \t(]{0,2}(?=[\"'`]))?\\{0,3}[\"'`]{0,2}[ \t]{0,4}"
        r"(?:(?P<scheme>[a-z][a-z0-9_-]{1,20})[ \t]{1,4})?"
        r"(?P<value>[A-Za-z0-9._~+/=@:|$%-]{5,}+)",
        check=_is_header,
    ),
    Row(
        "sql-password",
        "identified|password",
        r"(?i)(?:identified[ \t]{1,4}(?:with[ \t]{1,4}[\w']{1,40}[ \t]{1,4})?(?:by|as)"
        r"(?:[ \t]{1,4}password)?|password)(?:[ \t]{1,4}|[ \t]{0,2}\()[ \t]{0,2}N?\\{0,3}"
        r"(?:(?P<quote>['\"])(?P<value>[^'\"\n\\]{4,200})(?P=quote)?"
        r"|(?<=by )(?P<bare>[\w!#$%^&*@+-]{6,100}))",
        check=_is_sql_password,
        near_pattern=re.compile(
            r"\b(?:create|alter|grant|set|role|user|login|identified|update|insert)\b"
        ),
        reach=(160, 0),
    ),
    Row(
        "private-jwk",
        '"kty',
        r"(?a)\"(?:d|p|q|dp|dq|qi|k)\\{0,3}\"[ \t]{0,4}:[ \t]{0,4}\\{0,3}\""
        r"(?P<value>[\w-]{16,2000})",
        place=_TEXT,
    ),
    Row(
        "bundler-credentials",
        "bundle_",
        r"BUNDLE_[A-Z0-9_]{1,60}?__[A-Z0-9_]{1,40}[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
        r"(?P<value>[A-Za-z0-9]{4,100}:[A-Za-z0-9]{4,100})",
    ),
    Row(
        "signed-address",
        _parameters(SIGNING),
        rf"(?i)[?&;](?P<name>{SIGNING}){_PARAMETER_VALUE}",
        judge=_is_signature,
        check=_is_long_or_password,
        place=_TEXT,
    ),
    Row(
        "address-key",
        _parameters(KEYED),
        rf"(?i)[?&;](?:{KEYED}){_PARAMETER_VALUE}",
        judge=_is_parameter_key,
        place=_TEXT,
    ),
    Row(
        "signed-address",
        "invite|reset|verify|confirm|magic|activate|signin",
        r"\w{5,8}[\w-]{0,20}(?:/|\?[\w-]{1,20}=)(?P<bare>[\w.~-]{24,400})",
        judge=_is_long_token,
    ),
    Row(
        "session-cookie",
        "session=|_sid=|sess=",
        r"(?P<bare>(?:[^=;,:\s\"'&<>\\]|=(?<!session=)(?<!_sid=)(?<!sess=)){24,4000}+)",
        judge=_is_long_token,
        place=_BEHIND,
    ),
    Row(
        "telegram-token",
        "bot|telegram|бот",
        r"(?a)(?P<bare>\d(?:(?<![A-Za-z0-9]\d)|(?<=bot\d))\d{7,9}:[\w-]{35})(?![\w-])",
        place=_TEXT,
    ),
    Row(
        "configured-password",
        "requirepass|masterauth|snmp-server|enable secret|wpa_passphrase|pre-shared-key",
        r"(?i)(?:requirepass|masterauth|snmp-server[ \t]+community|enable[ \t]+secret"
        r"|wpa_passphrase(?==)|pre-shared-key)"
        r"[ \t=]+(?:\d{1,2}[ \t]+)?[\"']?(?P<bare>[^\s\"']{4,200})",
        judge=_is_configured,
    ),
    Row("configured-password", "wifi:", r"WIFI:(?:[^\n;]{1,80};){0,4}?P:(?P<bare>[^;\n]{4,100});"),
    Row(
        "private-key",
        "-----begin ",
        r"-----BEGIN [A-Za-z0-9 ]{0,40}(?:PRIVATE|SECRET|Static) (?:KEY|key)[A-Za-z0-9 ]{0,20}-----"
        rf"[ \t\r\n]*+(?P<value>(?:[^-]|-(?!----)){{0,{_MOST_KEY_CHARS}}}+(?=-----END)"
        rf"|(?:[A-Za-z0-9+/=\s:,.()#>*\"'`|]|\\+[nr/t]|-(?!-)){{0,{_MOST_KEY_CHARS}}}+)",
        judge=_has_key_line,
        trim=" \t\r\n",
    ),
    Row(
        "private-key",
        "ls0tls1crudjti",
        r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{60,}+={0,2}",
        judge=_decodes_to_key,
    ),
    Row(
        "private-key",
        "private-lines:",
        r"Private-Lines:[ \t]*\d{1,4}\r?\n(?P<bare>(?:[A-Za-z0-9+/=]{1,76}\r?\n?){1,200})",
    ),
    Row(
        "account-token",
        "client(",
        r"(?i)client\(\s{0,40}[\"']AC[0-9a-f]{32}[\"'],\s{0,40}[\"'](?P<bare>[0-9a-f]{30,32})[\"']",
    ),
    Row(
        "key-bytes",
        "key|secret|seed",
        r"(?i)[a-z]{3,6}[\"']?(?:\[\w{0,12}\])?[ \t]{0,8}(?::=|=>|=|:)[ \t]{0,8}"
        r"(?:(?:new[ \t]+)?[a-z_][\w.]{0,30}\(?)?[\[({]\s{0,12}+"
        r"(?P<value>(?:0x[0-9a-f]{1,2}|\d{1,3})(?:\s{0,12}+,\s{0,12}+(?:0x[0-9a-f]{1,2}|\d{1,3}))"
        r"{11,255}+)\s{0,12}+,?\s{0,12}[\])}]",
        judge=_is_random,
    ),
    Row(
        "password-hash",
        "$",
        r"\$\$?(?:1|5|6|7|8|9|14|y|gy|md5|sha1|apr1|2[abxy]?|argon2(?:id|i|d)|scrypt"
        r"|pbkdf2(?:-sha\d+)?|P|H|S)\\?\${1,2}[\w./+=,$\\-]{12,300}",
        judge=_is_no_sample,
        place=_TEXT,
    ),
    Row(
        "password-hash",
        "pbkdf2_sha|bcrypt_sha256$|scrypt$|sha1$|argon2$|scram-sha-|{sha|{ssha|{crypt",
        r"(?<![\w$])(?:pbkdf2_sha\d+|bcrypt_sha256|scrypt|sha1|argon2)\$(?=[^\s\"']{0,40}\$)"
        r"[\w./+=,$:-]{20,300}|SCRAM-SHA-\d+\$\d+:[\w./+=]{8,80}\$[\w./+=:]{40,200}"
        r"|\{(?:S?SHA(?:256|384|512)?|CRYPT)\}[\w./+=$]{16,300}",
        judge=_is_no_sample,
    ),
    Row("password-hash", "::", r"::(?<=\d:(?P<bare>[0-9a-fA-F]{32}:[0-9a-fA-F]{32})::)"),
)
_SENTENCES = (
    Row(
        _TOLD,
        "new one|current one|right one|correct one|temporary one|latest one",
        r"(?i) (?:is|was|will be)(?: now)?:?[ \t]+[\"'`“]?(?P<value>[^\s\"'`”]{6,100})",
        judge=_is_called_one,
        place=_BEHIND,
        near_pattern=_POLICY,
        reach=(240, 240),
        trim=TRAILING,
        whole=True,
    ),
    Row(
        _TOLD,
        "password|passphrase",
        r"[^\n\"'`=(){}]{0,99}+\n(?:[ \t]{0,40}\r?\n)?[ \t]{0,40}"
        r"(?P<value>[A-Za-z0-9]{12,64})[ \t]{0,40}(?=\r?\n|$)",
        place=_BEHIND,
        check=_is_alone,
    ),
    Row(
        _TOLD,
        "passw",
        r"(?i)passw(?=[^\n ]{0,46}+ )[^\n]{0,40}?[:= \t][\"'`]?"
        r"(?P<value>[a-z]{4} [a-z]{4} [a-z]{4} [a-z]{4})"
        r"(?=[\"'`\s]|$)",
    ),
    Row(
        _TOLD,
        "pass",
        r"(?i)\b(?:use|used|using|take|try|set|enter|type|nimm|utilise|usa|usar)[ \t]+[\"'`“]?"
        r"(?P<value>[^\s\"'`”]{6,100})[\"'`”]?[ \t]+(?:as|for|als|comme|como)"
        r"(?:[ \t]+[^\W\d]+){0,4}[ \t]*\Z",
        judge=_is_used,
        place=_BEFORE,
        sought_text=" pass|\tpass",
        back=160,
    ),
    Row(
        _TOLD,
        "set |changed |change it|reset ",
        r"(?i)(?:set|changed?|reset)[ \t]{1,4}"
        r"(?:it|mine|that|(?:the|my|your)[ \t]{1,4}[\w ]{2,40}?)[ \t]{1,4}"
        r"(?:to|as)[ \t]{1,4}[\"'`“]?(?P<value>[^\s\"'`”]{8,100})",
        check=_is_set,
        trim=TRAILING,
        near_pattern=_POLICY,
        reach=(240, 0),
    ),
    Row(
        "told-code",
        "verification code|security code|login code|passcode|confirmation code|otp"
        "|authentication code|2fa code|pin code|one-time code|access code",
        _CODE_VALUE,
        place=_BEHIND,
        check=_is_code,
        whole=True,
    ),
    Row(
        "told-code",
        "bestätigungscode|código de verificación|code de vérification|код для входа"
        "|код подтверждения|保险箱密码|保险柜密码|门禁密码|门禁码|门锁密码|暗証番号"
        "|验证码|驗證碼|認証コード|確認コード|인증번호|인증 코드",
        _CODE_VALUE,
        place=_BEHIND,
        check=_is_code,
    ),
    Row(
        "told-code",
        # "code" alone is in most texts of agents, so only with words next to it
        "combination|combo|kombination|combinaison|combinación|combinazione|combinação|código|codice"
        "|код |code for |code to |code of the|code d"
        "|code für|code vom|code zum|türcode|tresorcode|safe-code|"
        + "".join(f"{lock} pin|" for lock in keys("door|alarm|safe|keypad|lock|garage"))
        + "".join(f"{lock} code|" for lock in keys(f"{_LOCKS_IN_ENGLISH}|box|unit"))
        + "opens with|unlocks with|padlock|digicode|lockbox|zahlenschloss|fahrradschloss",
        r"(?i)[^\W\d_]{3,17}(?:[ -](?:pin|code)\b)?(?=\D{0,60}+\d)(?P<gap>[^\d\n:=→]{0,44}?)"
        r"(?P<verb>(?:[:=→]|->|\b(?:is|are|was|ist|lautet|c['’]est|est|es|è|é|with)\b|['’]s\b)"
        rf"(?: now\b)?)?[^\S\n]{{0,3}}{OPENING}#?(?P<value>"
        r"(?:[RL][ -]?)?\d{1,2}(?:[-–/, ]{1,3}(?:[RL][ -]?)?\d{1,2}){2,3}"
        r"|\d{4,8})(?![\w.%-]*\d|-\w|[^\S\n]?(?:lines?|bytes|tokens|ms|times|[kmg]b)\b)",
        check=_opens_lock,
    ),
    Row(
        "told-code",
        "recovery code|backup code|scratch code|rescue code",
        r"(?i)s?\b[^\n]{0,80}\n\s{0,8}(?P<value>(?:[-*•]?[^\S\n]{0,8}(?:\d{1,2}[.)][^\S\n])?"
        r"(?=\d|[a-z]{1,9}\d{1,9}[a-z-])[a-z0-9]{4,10}(?:[- ][a-z0-9]{4,10}){0,4}[^\S\n]{0,8}"
        r"(?:\r?\n|\Z)){3,20})",
        place=_BEHIND,
        trim=" \t\r\n",
    ),
    Row(
        _TOLD,
        "login|log in|log into|logged in|sign in|signed in|sign-in|cred|account|user/pass"
        "|user / pass|username|acceso|accesso|accès|acesso|zugang|identifiant|anmeld|connexion"
        "|usuario|basic auth|учетн|логин|доступ|账号|ログイン",
        r"(?:(?P<user>[\w.+@-]{2,64}+)[`\"'*]{0,3})?"
        r"(?P<sign> ?[/|–—] ?| : |:(?! )|, ?| (?:and|with|using|und|mit|y|con|et|avec|и) )"
        r"(?:(?:the |pass|pw|password |passwort )\b ?){0,2}[*`\"']{0,3}"
        r"(?P<value>[^\s\"'`/|,;<>()]{8,60})(?![/(])",
        check=_is_of_user,
        sought_text=" / |@|admin|root|ubuntu|deploy|postgres|demo",
        near_pattern=_LOGIN,
        reach=(160, 0),
        trim=TRAILING,
    ),
    Row(
        "seed-phrase",
        "phrase|mnemonic|seed",
        r"(?:seed|recovery|mnemonic|wallet|secret recovery|backup)[ -]?(?:phrase|words?)?"
        r"[^\n\"'`]{0,40}?[:\s\"'`]{1,16}(?P<value>(?:(?:\d{1,2}[.):][ \t]?)?[a-z]{3,8}"
        r"[ \t,\n]{1,2}){11,23}(?:\d{1,2}[.):][ \t]?)?[a-z]{3,8})\b",
        place=_TEXT,
    ),
)
_IN_PLACE = by_keywords(_PLACES)
_BY_LABEL = by_keywords(_SENTENCES)

_CURL_USER = re.compile(
    r"(?<=\s)(?:-[a-zA-Z]{0,4}u|--(?:proxy-)?user)(?:[ \t=]{1,8}|(?=[\"']))"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{1,200})(?P=quote)(?P<rest>:[\"']?[^\"'\s]{1,200})?"
    r"|(?P<bare>[^\s\"':]{0,100}:[^\s]{1,200}))"
)
_MOST_CURL_CHARS = 2000
_CURLS = declare("curl")
PLACE_BITS, LABEL_BITS = _IN_PLACE.bits | _CURLS, _BY_LABEL.bits


def find_in_place(reading: SearchedText) -> Iterator[SecretMatch]:
    yield from find_by_rows(_IN_PLACE, reading)
    if reading.found & _CURLS:
        yield from _find_curl_users(reading.text)


def find_by_label(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every secret that follows a label in a sentence."""
    return find_by_rows(_BY_LABEL, reading)


def _find_curl_users(text: str) -> Iterator[SecretMatch]:
    offset = text.find("curl")
    while offset >= 0:
        following = text.find("curl", offset + 4)
        limit = offset + _MOST_CURL_CHARS
        for match in _CURL_USER.finditer(
            text, offset, limit if following < 0 else min(limit, following)
        ):
            yield from _curl_password(match)
        offset = following


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
