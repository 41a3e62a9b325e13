"""Secrets known by a label that stands apart from them: in a sentence, a table, a pair.

Owns the words for passwords, keys and codes in some fifteen languages, how a sentence leads from
such a word to its value, and the columns of tables. Never masks a label, and never a plain word:
"the password is required" says no password. Always linear: every search goes forward from a
literal, and what follows it is bounded.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from recollect.rules.secret_contexts import SecretMatch, kind_of_name, places_of
from recollect.rules.secret_triggers import held, one_of, trigger, with_triggers
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


class Judge(Protocol):
    """Says whether a word of a sentence is the secret that its label announces."""

    def __call__(self, value: str, *, words_do: bool) -> bool:
        """`words_do`: words that somebody joined may be one there."""


_FIRST_WORD = re.compile("[a-z]+")
# All in lower case. Words that begin alike are looked for by what they share.
_PASS_WORD = re.compile(r"pass(?:word|wd|code|phrase|wort)?s?")
_KEY_BEFORE = (
    *("api", "access", "secret", "private", "unseal", "signing", "encryption", "license"),
    *("licence", "recovery", "account", "master", "auth", " my", " this", " your", " our", " new"),
)
_PASSWORDS: tuple[tuple[str, int], ...] = tuple(
    (literal, trigger(_FIRST_WORD.findall(literal)[0]))
    for literal in (
        *("kennwort", "contrasena", "clave", "mot de passe", "senha", "palavra-passe"),
        *("wachtwoord", "salasana", "kata sandi", "heslo", "pw", "pwd", "mdp"),
    )
)
_PASSWORDS_BEYOND_ASCII: tuple[str, ...] = (
    *("contraseña", "lösenord", "hasło", "şifre", "mật khẩu", "jelszó", "парол", "кодовое слово"),
    *(
        "密码",
        "密碼",
        "口令",
        "暗号",
        "パスワード",
        "暗証番号",
        "비밀번호",
        "비번",
        "암호",
        "패스워드",
    ),
    *("كلمة المرور", "كلمة السر", "पासवर्ड", "รหัสผ่าน", "κωδικός", "סיסמה"),
)
_TOKENS: tuple[tuple[str, int], ...] = tuple(
    (literal, trigger(_FIRST_WORD.findall(literal)[0]))
    for literal in ("token", "client secret", "jeton", "chave", "llave", "chiave", "sleutel")
)
_TOKENS_BEYOND_ASCII: tuple[str, ...] = (
    *("schlüssel", "clé", "ключ", "токен", "секрет"),
    *("密钥", "密鑰", "金鑰", "令牌", "秘钥", "キー", "トークン", "シークレット", "키", "토큰"),
)
_CODES = with_triggers(
    (
        *("verification code", "security code", "login code", "passcode", "confirmation code"),
        *("authentication code", "2fa code", "pin code", "one-time code", "access code", "otp"),
    )
)
_CODES_BEYOND_ASCII: tuple[str, ...] = (
    *("bestätigungscode", "código de verificación", "code de vérification", "код подтверждения"),
    *("код для входа", "验证码", "驗證碼", "認証コード", "確認コード", "인증번호", "인증 코드"),
)
_CREDENTIALS = tuple(
    (label, trigger(label))
    for label in ("credenciales", "credentials", "creds", "identifiants", "login", "zugangsdaten")
)
_CREDENTIAL_WORDS = trigger(" ".join(label for label, _ in _CREDENTIALS))
# Words of ASCII letters, one of which a text holds where there is something to look for.
_PASSWORD_HINTS = trigger(
    "password passwords passwd passcode passphrase passwort kennwort contrasena clave mot senha "
    "palavra wachtwoord salasana kata heslo pass pw pwd mdp"
)
_TOKEN_HINTS = trigger("key keys apikey token client jeton chave llave chiave sleutel")
_LOGIN_WORDS = trigger("login log sign signin connect admin administrator root ubuntu guest")
_CODE_WORDS = trigger("code pin otp passcode one")
_CODE_CONTEXTS = trigger(
    "your verification verify login sign signin door gate alarm access security sms otp pin "
    "unlock entry safe confirm authentication authenticate one phone voicemail"
)
_SET_WORDS = trigger("set change changed reset")
_POLICY_WORDS = trigger("password passphrase passwort characters login account")
_VALUE_WORDS = trigger("value default parametervalue string stringvalue secretvalue defaultvalue")
_NAMING_WORDS = trigger("name key variable parameterkey field label param header property")
_LIST_WORDS = trigger("recovery backup rescue scratch emergency mnemonic seed wallet")
_PROMPT_WORDS = trigger("password passphrase")
_CODE_HINTS = trigger("code otp passcode")
# Beyond ASCII a word ends elsewhere: parts of words, and a letter of each label.
_PASS_PART, _KEY_PART = trigger(parts=("pass",)), trigger(parts=("key",))
_CODE_PART = trigger(parts=("code", "otp"))
_PASSWORD_LETTERS = one_of(_PASSWORDS_BEYOND_ASCII)
_TOKEN_LETTERS = one_of(_TOKENS_BEYOND_ASCII)
_CODE_LETTERS = one_of(_CODES_BEYOND_ASCII)
_REACH_CHARS = 110
# How a sentence gets from the label to the value: words, then a verb or a sign; or at once.
_COPULA = (
    r"(?P<verb>\b(?:(?:was|is|has been)\ (?:re)?(?:set|changed)\ to|ist\ (?:jetzt|nun)|wurde\ auf"
    r"|is|are|was|now|set to|changed to|will be|es|son|est|sont|c['’]est|ist|lautet"
    r"|lauten|sind|heißt|heisst|é|são|foi|è|sono|jest|to|là|är|olarak|это|стал|теперь"
    r"|(?:измен|смен|помен)\w{2,8}\ на|(?:от|для)\ [а-яё]{3,20}(?=\ [!-,.-~]{0,40}\d))\b"
    r"|[:=：→]|->|=>|[–—]|[はがを]|(?:现在|目前)?(?:[是为為]|(?:改|换|设|更新)(?:成了?|为))|[은는이가]"
    r"|입니다)"
)
_LEAST_GAP_CHARS = 2
_ENGLISH_VERBS = words("is are was now")
_GAP = r"(?:[^\S\n]{1,3}(?:[^\s:=：\"'’`「『“«,;.!?，。]|['’](?=\w)){1,24}+){0,7}?,?"
_OPENING = r"[\s\"'`「『“«‘(*_<]{0,6}"
_RAW = r"(?P<value>[^\s\"'`」』”»’，。；、）<>]{4,200})"
_TELLS = re.compile(
    rf"{_GAP}[^\S\n]{{0,3}}{_COPULA}[^\S\n]{{0,3}}[:：]?[^\S\n]{{0,3}}{_OPENING}{_RAW}",
    re.IGNORECASE,
)
_AT_ONCE = re.compile(
    rf"[*_`]{{0,3}}(?:[^\S\n]{{0,3}}\d{{1,2}})?"
    rf"(?:[^\S\n]?\[[^\]\n]{{0,40}}\])?[^\S\n]{{0,3}}[:=：]?[^\S\n]{{0,3}}{_OPENING}{_RAW}"
)
_ENDING = re.compile(r"[^\W\d_a-zA-Z\u4e00-\u9fff]{0,6}")
_UNSPACED, _LEAST_UNSPACED_CHARS = "\u2e80", 8
"""From here on scripts write no spaces: a value so long may follow its label at once."""
_PARTICLES = "はがを是为為은는이가"
_ASCII_RUN = re.compile(r"[!-~]*")
_CODE_VALUE = re.compile(
    rf"(?P<gap>[\w'’ -]{{0,30}}?){_COPULA}?[^\S\n]{{0,4}}{_OPENING}(?:[A-Z]-)?"
    rf"(?P<value>\d{{4,10}}|\d{{3}}[ -]\d{{3}})(?![\w.-]*\d)",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(r"[A-Za-z_][A-Za-z_.-]+=")
_CODE_SIGNS = frozenset(",;[(|")
_CODE_FIRST = re.compile(
    r" is your (?:[\w-]+[ \t]+){0,4}(?:code|pin|otp|passcode|password)\b", re.IGNORECASE
)
_DIGITS_BEFORE = re.compile(r"(?<![\w.])(?:[A-Za-z]-)?(?P<value>\d{4,8})\Z")
_CODE_BEHIND = re.compile(
    r"(?:word|code)?[ \t]*(?:is|:|=|to sign in is)?[ \t]*(?P<value>\d{4,8})(?![\w.-])",
    re.IGNORECASE,
)
_CODE_LITERALS = with_triggers(("code", "pin", "otp", "one-time pass"))
_WORD_BEFORE = re.compile(r"([a-z0-9-]+)[ \t]+\Z")
_SECRET_CODES = words(
    "verification verify login log-in signin sign-in security one-time confirmation authentication "
    "auth access pin passcode 2fa mfa sms otp unlock door gate alarm entry garage safe lock "
    "voicemail lockbox locker pairing your"
)
"""What a code is called that lets somebody in; errors, exits and closed sockets have codes too."""
_MEASURED = re.compile(
    r"\b(?:policy|policies|length|len|size|count|limit|minimum|maximum|min|max|timeout|ttl|expiry"
    r"|expires?|expiration|lifetime|interval|attempts?|retries|requirements?|rules?|format|strength"
    r"|strategy|algorithm|encoder|hasher|version|column|field|index|prefix|suffix|file|path|name)\b",
    re.IGNORECASE,
)
"""What is told of a password or a code that is not itself: "the password policy is …"."""
_PASSWORD, _KEY = "told-password", "told-key"
_TRAILING = ".,;:!?)]}>*_…"

_APP_PASSWORD = re.compile(
    r"(?i)passw[^\n]{0,40}?[:= \t][\"'`]?(?P<value>[a-z]{4} [a-z]{4} [a-z]{4} [a-z]{4})(?=[\"'`\s]"
    r"|$)"
)
_PROMPT = re.compile(r"[^\n]{3,120}?:[ \t]{1,4}(?P<value>[^\s\"'`]{6,100})[ \t]*(?=\r?\n|$)")
_NEXT_LINE = re.compile(
    r"[^\n\"'`=(){}]{0,80}:?[ \t]*\r?\n(?:[ \t]*\r?\n)?[ \t]*(?P<value>[A-Za-z0-9]{12,64})[ \t]*"
    r"(?=\r?\n|$)"
)
_LOGIN_WITH = re.compile(
    r"[ \t]+(?:with|as|using)[ \t]+[\w.@+-]{2,64}[ \t]*(?:and|with|/|,)[ \t]*(?:password[ \t]+"
    r"|pw[ \t]+)?"
    r"[\"'`]?(?P<value>[^\s\"'`]{6,100})",
    re.IGNORECASE,
)
_LOGIN_VERBS = with_triggers(("log in", "login", "sign in", "connect"))
_USER_AND = re.compile(r" / [\"'`]?(?P<value>[^\s\"'`]{6,100})")
_USERS = ("admin", "administrator", "root", "user", "ubuntu", "postgres", "guest", " sa")
_USED_AS = re.compile(
    r"\b(?:use|used|using|take|try|set|enter|type|nimm|utilise|usa|usar)[ \t]+[\"'`“]?"
    r"(?P<value>[^\s\"'`”]{6,100})[\"'`”]?[ \t]+(?:as|for|als|comme|como)[ \t]+"
    r"(?:[^\W\d]+[ \t]+){0,4}\Z",
    re.IGNORECASE,
)
_ARE = re.compile(r"(?i)[*_`]{0,3}[ \t]*(?:\w+[ \t]+)?(?:are|is|[:=：])")
_USED_JOINTS = (" as ", " als ", " comme ", " como ", " for ")
_USED_REACH_CHARS = 160
_SET_HINTS = with_triggers(
    (
        *("set it", "set mine", "set my", "set the", "set that", "set your", "changed it"),
        *("changed my", "changed the", "change it", "reset it", "reset my", "reset the"),
    )
)
_SET_TO = re.compile(
    r"(?:set|changed?|reset)[ \t]+(?:it|mine|that|(?:the|my|your)[ \t]+[\w ]{2,40}?)[ \t]+(?:to"
    r"|as)[ \t]+"
    r"[\"'`“]?(?P<value>[^\s\"'`”]{8,100})",
    re.IGNORECASE,
)
_POLICY = re.compile(r"password|passphrase|passwort|characters|login|account")
_ONES = with_triggers((" one is", " one was", " one will be"))
_WHICH_ONE = ("new", "old", "current", "right", "correct", "other", "temporary", "latest")
_ONE_IS = re.compile(
    r" one (?:is|was|will be)(?: now)?:?[ \t]+[\"'`“]?(?P<value>[^\s\"'`”]{6,100})", re.IGNORECASE
)
_PRONOUN = re.compile(r"(?i)[ \t](?:it|mine|that)[ \t]+(?:to|as)[ \t]")
_POLICY_REACH_CHARS = 240
_USER_SLASH = re.compile(
    r"[^\n/|]{0,24}?[:\s][\"'`]?(?P<user>[\w.@+-]{2,64})[\"'`]?(?![ \t]+/[^ \t])[ \t]{0,3}"
    r"(?P<sign>[/|:])[ \t]{0,3}[\"'`]?(?P<value>[^\s\"'`,;|]{6,100})"
)

_CODE_LIST = re.compile(
    r"(?:recovery|backup|rescue|scratch|emergency|one-time)[ -](?:codes?|keys?)[^\n]{0,120}\n"
    r"(?P<lines>(?:[^\n]{0,80}\n?){1,24})"
)
_LISTED_CODE = re.compile(
    r"(?m)^[ \t]*(?:\d{1,2}[.):][ \t]+|[-*•][ \t]+)?(?P<value>[0-9A-Za-z]{4,10}"
    r"(?:[- ][0-9A-Za-z]{4,10}){0,4})[ \t]*$"
)
_SEED = re.compile(
    r"(?:seed|recovery|mnemonic|wallet|secret recovery|backup)[ -]?(?:phrase"
    r"|words?)?[^\n\"'`]{0,40}?"
    r"[:\s\"'`]+(?P<value>(?:(?:\d{1,2}[.):][ \t]?)?[a-z]{3,8}[ \t,\n]{1,2}){11,23}"
    r"(?:\d{1,2}[.):][ \t]?)?[a-z]{3,8})\b"
)

_NAMING = r"(?:name|key|variable|parameterkey|field|label|param|header|property)"
_HOLDING = r"(?:value|parametervalue|val|plaintext|stringvalue|secretvalue|content|defaultvalue)"
_JOINT = r"[\"']?[ \t]{0,8}(?:[:=]|=>)[ \t]{0,8}"
_PAIR = re.compile(
    rf"[\"'\s<({{,](?:{_NAMING}){_JOINT}(?P<nq>[\"']?)(?P<name>[\w.$ -]{{2,80}}?)(?P=nq)"
    rf"[ \t]{{0,8}}[,;]?(?:\r?\n)?[ \t]{{0,24}}[\"'\s]?(?:{_HOLDING}){_JOINT}(?P<q>[\"']?)"
    rf"(?P<value>[^\n\"']{{4,2000}}?)(?=(?P=q)(?:[\s,;/>}}\])]|$))",
    re.IGNORECASE,
)
_REVERSED_PAIR = re.compile(
    rf"[\"'\s<({{,](?:{_HOLDING}){_JOINT}(?P<q>[\"'])(?P<value>[^\n\"']{{4,2000}}?)(?P=q)"
    rf"[ \t]{{0,8}}[,;]?"
    rf"(?:\r?\n)?[ \t]{{0,24}}[\"'\s]?(?:{_NAMING}){_JOINT}(?P<nq>[\"'])"
    rf"(?P<name>[\w.$ -]{{2,80}}?)(?P=nq)",
    re.IGNORECASE,
)
_ELEMENTS = re.compile(
    r"<(?:name|key)>[ \t]*(?P<name>[\w.$ -]{2,80})</(?:name|key)>\s{0,40}<(?:value|string)>"
    r"(?P<value>[^<\n]{4,2000})</",
    re.IGNORECASE,
)
_PLIST = re.compile(
    r"<key>(?P<name>[\w.$ -]{2,80})</key>\s{0,40}<string>(?P<value>[^<\n]{4,2000})</string>"
)
_VARIABLE = re.compile(
    r"variable[ \t]+\"(?P<name>[\w-]{2,80})\"[ \t]*\{[^{}]{0,300}?default[ \t]*=[ \t]*\""
    r"(?P<value>[^\"\n]{4,400})\""
)
_HOLDS = re.compile(r"[\"']?[ \t]{0,8}(?:[:=>]|=>)")
_PAIR_REACH_CHARS = 160
_MOST_PAIR_CHARS = 600
_SESSION_NAME = re.compile(r"(?i)sess(?:ion)?[_-]?id$|^sid$|\.sid$|session$|remember_token")

_COLUMNS = words(
    "password passwd pwd pass passwort kennwort contraseña clave senha пароль 密码 密碼 パスワード "
    "비밀번호 passphrase passcode wachtwoord hasło psk"
)
_TABLE_HINTS = with_triggers(
    ("pass", "pwd", "secret", "token", "key", "kennwort", "senha", "clave", "psk")
)
_TABLE_HINTS_BEYOND_ASCII = ("contraseña", "пароль", "密码", "密碼", "パスワード", "비밀번호")
_COLUMN_PARTS = trigger(parts=[hint for hint, _ in _TABLE_HINTS])
_COLUMN_LETTERS = one_of(_TABLE_HINTS_BEYOND_ASCII)
_MOST_HEADER_CHARS = 400
_ROW_NAME = re.compile(r"[\w.-]{2,80}")
_COLUMN_NAME = re.compile(r"[^\W_][\w ./#'-]{0,39}")
_RULE_LINE = re.compile(r"[\s|:+=-]+$")


def find_labelled(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Every secret that a label announces; `lowered` is the text in lower case, `found` are the
    triggers in it."""
    beyond = not text.isascii()
    if found & _PASSWORD_HINTS or (
        beyond and (found & _PASS_PART or _PASSWORD_LETTERS.search(lowered))
    ):
        yield from _find_passwords(text, lowered, found, beyond=beyond)
    if found & _TOKEN_HINTS or (beyond and (found & _KEY_PART or _TOKEN_LETTERS.search(lowered))):
        yield from _find_keys(text, lowered, found, beyond=beyond)
    if found & _CODE_HINTS or (beyond and (found & _CODE_PART or _CODE_LETTERS.search(lowered))):
        yield from _find_codes(text, lowered, found)
    if found & _CODE_WORDS and found & _CODE_CONTEXTS:
        yield from _find_plain_codes(text, lowered, found)
    if found & _PROMPT_WORDS:
        yield from _find_prompts(text, lowered)
        yield from _find_app_passwords(text, lowered)
    if found & _LOGIN_WORDS:
        yield from _find_logins(text, lowered, found)
    if found & _CREDENTIAL_WORDS:
        yield from _find_users(text, lowered, found)
    if found & _POLICY_WORDS:
        yield from _find_ones(text, lowered, found)
        yield from _find_settings(text, lowered, found)
    if found & _VALUE_WORDS and found & _NAMING_WORDS:
        yield from _find_pairs(text, lowered)
    if found & _COLUMN_PARTS or (beyond and _COLUMN_LETTERS.search(lowered)):
        yield from _find_columns(text, lowered, found, beyond=beyond)
    if found & _LIST_WORDS:
        yield from _find_code_lists(text, lowered)


def _secret_at(rule: str, start: int, end: int, match: re.Match[str]) -> SecretMatch:
    return SecretMatch(rule, start, end, match.start(), max(end, match.end()))


def _labels_in(lowered: str, labels: tuple[str, ...]) -> list[str]:
    return [label for label in labels if label in lowered]


def _find_passwords(text: str, lowered: str, found: int, *, beyond: bool) -> Iterator[SecretMatch]:
    for at in places_of(lowered, "pass"):
        label = _PASS_WORD.match(lowered, at)
        if label is not None and (
            _begins_word(lowered, at) or (label[0] == "passwort" and lowered[at - 1] == "-")
        ):
            judge = _is_passed if label[0] == "pass" else _is_told_password
            if match := _announced_secret(text, label.end(), judge, "told-password"):
                yield match
            since = max(0, at - _USED_REACH_CHARS)
            used = None
            if any(joint in lowered[since:at] for joint in _USED_JOINTS):
                used = _USED_AS.search(text, since, at)
            if used is not None and (_is_strong(used["value"]) or is_chosen_words(used["value"])):
                yield _secret_at("told-password", *used.span("value"), used)
    others = [literal for literal, hint in _PASSWORDS if found & hint]
    for literal in [*others, *(_labels_in(lowered, _PASSWORDS_BEYOND_ASCII) if beyond else ())]:
        for at in places_of(lowered, literal):
            begins = not literal[0].isascii() or _begins_word(lowered, at)
            if begins and (
                match := _announced_secret(text, at + len(literal), _is_told_password, _PASSWORD)
            ):
                yield match


def _find_keys(text: str, lowered: str, found: int, *, beyond: bool) -> Iterator[SecretMatch]:
    for at in places_of(lowered, "key"):
        named = lowered[max(0, at - 12) : at].rstrip(" _-").endswith(_KEY_BEFORE)
        if named and (match := _announced_secret(text, at + 3, _is_told_token, _KEY)):
            yield match
    others = [literal for literal, hint in _TOKENS if found & hint]
    for literal in [*others, *(_labels_in(lowered, _TOKENS_BEYOND_ASCII) if beyond else ())]:
        for at in places_of(lowered, literal):
            begins = not literal.isascii() or _begins_word(lowered, at)
            if begins and (
                match := _announced_secret(text, at + len(literal), _is_told_token, _KEY)
            ):
                yield match


def _find_codes(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    labels = held(_CODES, lowered, found)
    if not lowered.isascii():
        labels += _labels_in(lowered, _CODES_BEYOND_ASCII)
    for label in labels:
        for at in places_of(lowered, label):
            after = at + len(label)
            match = _CODE_VALUE.match(text, after, after + _REACH_CHARS)
            if match is None or _MEASURED.search(text, after, match.start("value")):
                continue
            if match["gap"].strip() and not match["verb"]:
                continue  # "rejects the otp after 300000 ms"
            if not label.isascii() or _begins_word(lowered, at):
                yield _secret_at("told-code", *match.span("value"), match)


def _find_plain_codes(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Codes that are sent to sign in with, and those of doors."""
    for at in places_of(lowered, " is your "):
        digits = _DIGITS_BEFORE.search(text, max(0, at - 12), at)
        if digits is not None and _CODE_FIRST.match(text, at):
            yield _secret_at("told-code", *digits.span("value"), digits)
    for literal in held(_CODE_LITERALS, lowered, found):
        for at in places_of(lowered, literal):
            match = _CODE_BEHIND.match(text, at + len(literal))
            if match is None or not _begins_word(lowered, at):
                continue
            before = _WORD_BEFORE.search(lowered, max(0, at - 24), at)
            if literal != "code" or (before is not None and before[1] in _SECRET_CODES):
                yield _secret_at("told-code", *match.span("value"), match)


def _find_users(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """A password behind its user: `creds are ada / …`."""
    for label in [label for label, hint in _CREDENTIALS if found & hint]:
        for at in places_of(lowered, label):
            after = at + len(label)
            match = _USER_SLASH.match(text, after, after + _REACH_CHARS)
            value = "" if match is None else match["value"].rstrip(_TRAILING)
            if match is None or (is_name(value) and not _ARE.match(text, after)):
                continue
            if _is_strong(value) or (match["sign"] == "/" and is_chosen_words(value)):
                start = match.start("value")
                yield _secret_at("told-password", start, start + len(value), match)


def _begins_word(lowered: str, at: int) -> bool:
    return at == 0 or not (lowered[at - 1].isalnum() or lowered[at - 1] in "_-.$/+\\=&?")


def _announced_secret(text: str, after: int, judge: Judge, rule: str) -> SecretMatch | None:
    """What a sentence gives for the label that ends there."""
    limit = min(len(text), after + _REACH_CHARS)
    following = text[after : after + 1]
    if following and (following in "_-./$+&" or (following.isascii() and following.isalnum())):
        run = _ASCII_RUN.match(text, after)
        unspaced = text[after - 1] >= _UNSPACED
        if not unspaced or run is None or len(run[0]) < _LEAST_UNSPACED_CHARS:
            return None  # another word: `password_hash`, `tokenizer`
    if (
        following
        and following.isalpha()
        and not text[after - 1].isascii()
        and following not in _PARTICLES
    ):
        ending = _ENDING.match(text, after, limit)
        after = after if ending is None else ending.end()
    for grammar in (_AT_ONCE, _TELLS):
        match = grammar.match(text, after, min(len(text), limit + 200))
        if match is None or match.start("value") > limit:
            continue
        if _MEASURED.search(text, after, match.start("value")):
            continue
        value = _ASCII_RUN.match(match["value"])[0].rstrip(_TRAILING)  # type: ignore[index]
        words_do = grammar is _TELLS and _leads(match, after)
        if value and judge(value, words_do=words_do):
            start = match.start("value")
            return _secret_at(rule, start, start + len(value), match)
    return None


def _find_app_passwords(text: str, lowered: str) -> Iterator[SecretMatch]:
    done = 0
    for at in places_of(lowered, "passw"):
        match = _APP_PASSWORD.match(text, at) if at >= done else None
        if match is not None:
            done = match.end()
            yield _secret_at("told-password", *match.span("value"), match)


def _find_prompts(text: str, lowered: str) -> Iterator[SecretMatch]:
    """What is typed or printed behind a prompt: on its line, or alone on the next."""
    for word in ("password", "passphrase"):
        for at in places_of(lowered, word):
            for grammar in (_PROMPT, _NEXT_LINE):
                match = grammar.match(text, at + len(word))
                if match is None or _MEASURED.search(text, match.start(), match.start("value")):
                    continue
                if _is_strong(match["value"]) or (
                    grammar is _PROMPT and is_chosen_words(match["value"])
                ):
                    yield _secret_at("told-password", *match.span("value"), match)
                    break


def _find_logins(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """Who signs in, and with what: "log in with ada and …", "admin / …"."""
    matches = [
        _LOGIN_WITH.match(text, at + len(verb))
        for verb in held(_LOGIN_VERBS, lowered, found)
        for at in places_of(lowered, verb)
    ]
    if " / " in text:
        matches += [
            _USER_AND.match(text, at)
            for at in places_of(text, " / ")
            if lowered.endswith(_USERS, max(0, at - 16), at)
        ]
    for match in matches:
        value = "" if match is None else match["value"].rstrip(_TRAILING)
        if match is not None and _is_strong(value):
            if is_name(value) and "pass" not in match[0].lower():
                continue  # "admin / dashboard-v2"
            start = match.start("value")
            yield _secret_at("told-password", start, start + len(value), match)


def _leads(match: re.Match[str], after: int) -> bool:
    """Whether a sentence leads to the value: "is" leads to anything, a colon at once is code's."""
    verb, value = match["verb"].lower(), match["value"]
    if verb in _ENGLISH_VERBS:
        return "-" not in value  # "is case-sensitive"
    apart = match.start("verb") - after > _LEAST_GAP_CHARS
    if apart or verb not in ":=：→->=>–—":
        return True
    ends_line = match.end() == len(match.string) or match.string[match.end()] in "\r\n"
    return ends_line and ("-" in value or "_" in value)


def _is_told_password(value: str, *, words_do: bool) -> bool:
    return _is_strong(value) or (words_do and is_chosen_words(value))


def _is_passed(value: str, *, words_do: bool) -> bool:
    """For "pass", which is a verb too: what is passed to a function has a name."""
    del words_do
    return _is_strong(value) and not is_name(value)


def _is_told_token(value: str, *, words_do: bool) -> bool:
    del words_do
    has_digit = any(c.isdigit() for c in value)
    return has_digit and is_token_value(value, quoted=True, least_chars=16) and not is_name(value)


def _is_strong(value: str) -> bool:
    """Whether a word of a sentence can only be a password: letters and digits, or signs, mixed."""
    if len(value) < 6 or not value.isascii() or is_reference(value, quoted=False):
        return False
    if is_placeholder(value) or value[0] in "/.<{[(@#&|\\" or "://" in value or "()" in value:
        return False
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    signs = sum(c in "!@#$%^&*+=?~" for c in value[:-1])
    if not letters or (not digits and not signs):
        return False
    if value.isidentifier() and ("_" in value or len(value) < 8) and digits < 2:
        return False  # a name in code: `sha256`, `oauth2_token`
    if _NAMED_VALUE.match(value) or not _CODE_SIGNS.isdisjoint(value):
        return False
    return is_password_value(value, quoted=True, least_chars=6) and not (
        not digits and value.replace("-", "").replace("_", "").isalpha()
    )


def _find_settings(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    for hint in held(_SET_HINTS, lowered, found) if found & _SET_WORDS else ():
        for at in places_of(lowered, hint):
            match = _SET_TO.match(text, at)
            value = "" if match is None else match["value"].rstrip(_TRAILING)
            since = max(0, at - _POLICY_REACH_CHARS)
            if match is None or not _is_strong(value):
                continue
            if is_name(value) and not (_PRONOUN.search(match[0]) or "passw" in match[0].lower()):
                continue  # "set the login route to auth/login-v2"
            if _POLICY.search(lowered, since, match.end()):
                start = match.start("value")
                yield _secret_at("told-password", start, start + len(value), match)


def _find_ones(text: str, lowered: str, found: int) -> Iterator[SecretMatch]:
    """A password that is called "the new one", with the word for it before or behind it."""
    for literal in held(_ONES, lowered, found):
        for at in places_of(lowered, literal):
            match = _ONE_IS.match(text, at)
            value = "" if match is None else match["value"].rstrip(_TRAILING)
            if match is None or not _is_strong(value) or is_name(value):
                continue
            near = (max(0, at - _POLICY_REACH_CHARS), match.end() + _POLICY_REACH_CHARS)
            if lowered.endswith(_WHICH_ONE, max(0, at - 16), at) and _POLICY.search(lowered, *near):
                start = match.start("value")
                yield _secret_at("told-password", start, start + len(value), match)


def _find_pairs(text: str, lowered: str) -> Iterator[SecretMatch]:
    """A name and a value that two members, attributes or elements hold, in either order."""
    for pattern in (_PLIST, _VARIABLE):
        for match in pattern.finditer(text):
            if _is_paired(match["name"], match["value"]):
                yield _secret_at(_rule_of(match["name"]), *match.span("value"), match)
    yield from _find_values(text, lowered)


def _find_values(text: str, lowered: str) -> Iterator[SecretMatch]:
    done = 0
    for at in places_of(lowered, "value"):
        if _HOLDS.match(lowered, at + 5) is None:
            continue
        since = max(done, at - _PAIR_REACH_CHARS)
        match = _named_value(_PAIR, text, since, at) or _named_value(_ELEMENTS, text, since, at)
        if match is None:
            match = _REVERSED_PAIR.match(text, max(0, at - 1), at + _MOST_PAIR_CHARS)
        if match is not None and _is_paired(match["name"], match["value"].strip()):
            value = match["value"].strip()
            start = match.start("value") + match["value"].index(value)
            done = start + len(value)
            yield _secret_at(_rule_of(match["name"]), start, done, match)


def _named_value(pattern: re.Pattern[str], text: str, since: int, at: int) -> re.Match[str] | None:
    """The pair whose value stands behind the word for it at that place."""
    for match in pattern.finditer(text, since, at + _MOST_PAIR_CHARS):
        if match.start("value") > at:
            return match
    return None


def _rule_of(name: str) -> str:
    return "assigned-password" if kind_of_name(name) == "password" else "assigned-token"


def _is_paired(name: str, value: str) -> bool:
    if not value or is_reference(value, quoted=True):
        return False
    kind = kind_of_name(name)
    if kind == "password":
        return is_password_value(value, quoted=True) or is_chosen_words(value)
    if kind is not None and is_token_value(value, quoted=True):
        return True
    return _SESSION_NAME.search(name) is not None and len(value) >= 16 and " " not in value


def _find_columns(text: str, lowered: str, found: int, *, beyond: bool) -> Iterator[SecretMatch]:
    """The cells below a header that names a password, a key or a token."""
    if not ("|" in text or "," in text or "\t" in text or "#" in text or ";" in text):
        return
    hints = [hint for hint, bit in _TABLE_HINTS if found & bit]
    hints += _TABLE_HINTS_BEYOND_ASCII if beyond else ()
    lines = {line for hint in hints for line in _lines_with(lowered, hint)}
    table_end = -1
    for start, end in sorted(lines):
        if "|" in text[start:end]:
            yield from _row_pairs(text, start, end)
        if start > table_end:
            matches, last = _cells(text, start, end)
            yield from matches
            table_end = max(table_end, last)


def _lines_with(lowered: str, hint: str) -> Iterator[tuple[int, int]]:
    """The lines that hold this hint, as far as a header reaches."""
    at = lowered.find(hint)
    while at >= 0:
        since = max(0, at - _MOST_HEADER_CHARS)
        start = max(lowered.rfind("\n", since, at) + 1, since)
        end = lowered.find("\n", at, start + _MOST_HEADER_CHARS)
        if end < 0:
            end = min(len(lowered), start + _MOST_HEADER_CHARS)
        if start == 0 or lowered[start - 1] == "\n":
            yield start, end
        at = lowered.find(hint, max(end, at + 1))


def _row_pairs(text: str, start: int, end: int) -> Iterator[SecretMatch]:
    """The cell beside one that names a secret: `| DB_PASSWORD | … |`."""
    cells = text[start:end].split("|")
    place = start
    for name, cell in pairwise(cells):
        place += len(name) + 1
        called, value = name.strip(" \t`*"), cell.strip(" \t`*\r")
        if value and _ROW_NAME.fullmatch(called) and _is_paired(called, value):
            first = place + cell.index(value)
            yield SecretMatch("table-secret", first, first + len(value), start, end)


def _cells(text: str, start: int, end: int) -> tuple[list[SecretMatch], int]:
    """What stands in a header's secret columns, and where its table ends."""
    matches: list[SecretMatch] = []
    mark, columns, width = _secret_columns(text[start:end])
    at = end + 1
    while columns and at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        cells = text[at:stop].split(mark)
        if _RULE_LINE.match(text, at, stop) is None:
            if len(cells) != width:
                break
            for column, kind in columns:
                value = cells[column].strip(" \t\"'`*\r")
                if value and _is_cell_secret(value, kind):
                    first = at + sum(len(cell) + 1 for cell in cells[:column])
                    first += cells[column].index(value)
                    matches.append(
                        SecretMatch("table-secret", first, first + len(value), start, stop)
                    )
        elif not text[at:stop].strip():
            break
        at = stop + 1
    return matches, at - 1


def _secret_columns(header: str) -> tuple[str, list[tuple[int, str]], int]:
    """How a header parts its columns, which of them hold secrets, and how many there are."""
    mark = next((sign for sign in "|\t,;" if sign in header), "")
    if not mark and header.startswith("#") and header.count(":") >= 2:
        mark = ":"
    if not mark or (mark != "|" and header[0].isspace()):  # code, whose lines end so
        return "", [], 0
    names = [name.strip(' \t\r"`*#') for name in header.split(mark)]
    named = [name for name in names if name]
    if len(named) < 2 or not all(map(_COLUMN_NAME.fullmatch, named)):
        return "", [], 0
    columns = [(at, kind) for at, name in enumerate(names) if (kind := _column_kind(name))]
    return mark, columns, len(names)


def _column_kind(name: str) -> str | None:
    if name.lower() in _COLUMNS:
        return "password"
    kind = kind_of_name(name)
    return None if kind == "id" else kind


def _is_cell_secret(value: str, kind: str) -> bool:
    if " " in value or is_reference(value, quoted=True):
        return False
    if kind == "password":
        return is_password_value(value, quoted=True) or is_chosen_words(value)
    return _is_told_token(value, words_do=False)


def _find_code_lists(text: str, lowered: str) -> Iterator[SecretMatch]:
    if "code" in lowered or "key" in lowered:
        for match in _CODE_LIST.finditer(lowered):
            for code in _LISTED_CODE.finditer(text, *match.span("lines")):
                if any(c.isdigit() for c in code["value"]):
                    yield SecretMatch(
                        "recovery-code", *code.span("value"), match.start(), code.end()
                    )
    if "phrase" in lowered or "mnemonic" in lowered or "seed" in lowered:
        for match in _SEED.finditer(text):
            yield SecretMatch("seed-phrase", *match.span("value"), *match.span())
