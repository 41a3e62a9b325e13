"""Secrets that a sentence tells: a word for a password, a key or a code, and its value behind it.

Owns these words in some fifteen languages, how a sentence leads from one to its value, and the
rows of what people write around passwords: prompts, logins, codes, seed phrases. Never masks a
label, and never a plain word: "the password is required" says no password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

from recollect.core.rules.secret_keywords import Keywords, SearchedText
from recollect.core.rules.secret_names import is_labelled_token
from recollect.core.rules.secret_table import (
    Row,
    RowPlace,
    SecretMatch,
    begins_word,
    by_keywords,
    find_by_rows,
    keys,
)
from recollect.core.rules.secret_values import (
    is_chosen_words,
    is_name,
    is_password_value,
    is_placeholder,
    is_reference,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Judge(Protocol):
    """Says whether a word of a sentence is the secret that its label announces."""

    def __call__(self, value: str, *, words_do: bool) -> bool:
        """`words_do`: words that somebody joined may be one there."""


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
_NAMED_VALUE = re.compile(r"[A-Za-z_][A-Za-z_.-]+=")
_CODE_SIGNS = frozenset(",;[(|")
_MEASURED = re.compile(
    r"\b(?:policy|policies|length|len|size|count|limit|minimum|maximum|min|max|timeout|ttl|expiry"
    r"|expires?|expiration|lifetime|interval|attempts?|retries|requirements?|rules?|format|strength"
    r"|strategy|algorithm|encoder|hasher|version|column|field|index|prefix|suffix|file|path|name)\b",
    re.IGNORECASE,
)
"""What is told of a password or a code that is not itself: "the password policy is …"."""
_PASSWORD, _KEY = "told-password", "told-key"
_TRAILING = ".,;:!?)]}>*_…"


def _leads(match: re.Match[str], after: int) -> bool:
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
    return is_labelled_token(value)


def _is_strong(value: str) -> bool:
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


class _Label(NamedTuple):
    word: str
    rule: str
    judge: Judge
    before: tuple[str, ...]
    whole: bool


def _labels(text: str, rule: str, judge: Judge, before: str = "") -> tuple[_Label, ...]:
    return tuple(
        _Label(
            word,
            rule,
            judge,
            keys(before) if before else (),
            word.isascii() or (rule is _PASSWORD and word[0].isascii()),
        )
        for word in keys(text)
    )


# All in lower case.
_LABELS: tuple[_Label, ...] = (
    *_labels("pass", _PASSWORD, _is_passed),
    *_labels("password|passwd|passcode|passphrase|passwort", _PASSWORD, _is_told_password),
    *_labels("kennwort|contrasena|clave|mot de passe|senha", _PASSWORD, _is_told_password),
    *_labels("palavra-passe|wachtwoord|salasana|kata sandi", _PASSWORD, _is_told_password),
    *_labels("heslo|pw|pwd|mdp|contraseña|lösenord|hasło|şifre", _PASSWORD, _is_told_password),
    *_labels("mật khẩu|jelszó|парол|кодовое слово|密码|密碼|口令", _PASSWORD, _is_told_password),
    *_labels("暗号|パスワード|暗証番号|비밀번호|비번|암호|패스워드", _PASSWORD, _is_told_password),
    *_labels("كلمة المرور|كلمة السر|पासवर्ड|รหัสผ่าน|κωδικός|סיסמה", _PASSWORD, _is_told_password),
    *_labels(
        "key",
        _KEY,
        _is_told_token,
        "api|access|secret|private|unseal|signing|encryption|license|licence|recovery|account"
        "|master|auth| my| this| your| our| new",
    ),
    *_labels("token|client secret|jeton|chave|llave|chiave|sleutel", _KEY, _is_told_token),
    *_labels("schlüssel|clé|ключ|токен|секрет|密钥|密鑰|金鑰|令牌|秘钥", _KEY, _is_told_token),
    *_labels("キー|トークン|シークレット|키|토큰", _KEY, _is_told_token),
)

_BY_WORD = Keywords((label.word, label) for label in _LABELS)


def _find_told(reading: SearchedText) -> Iterator[SecretMatch]:
    text, lowered = reading.text, reading.lowered
    for _, label in _BY_WORD.held(reading.found):
        size = len(label.word)
        for at in reading.places(label.word):
            if label.before:
                stands = lowered[max(0, at - 12) : at].rstrip(" _-").endswith(label.before)
            else:
                stands = not label.whole or _begins(lowered, at, label.word)
            if stands:
                after = at + size
                if label.rule is _PASSWORD and lowered.startswith("s", after):
                    after += label.word.startswith("pass")
                match = _announced_secret(text, after, label.judge, label.rule)
                if match is not None:
                    yield match


def _begins(lowered: str, at: int, word: str) -> bool:
    return begins_word(lowered, at) or (word == "passwort" and lowered[at - 1] == "-")


def _announced_secret(text: str, after: int, judge: Judge, rule: str) -> SecretMatch | None:
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
            end = start + len(value)
            return SecretMatch(rule, start, end, match.start(), max(end, match.end()))
    return None


def _is_prompted(match: re.Match[str], value: str) -> bool:
    if _MEASURED.search(match.string, match.start(), match.start("value")):
        return False
    return _is_strong(value) or is_chosen_words(value)


def _is_alone(match: re.Match[str], value: str) -> bool:
    return _MEASURED.search(
        match.string, match.start(), match.start("value")
    ) is None and _is_strong(value)


def _is_code(match: re.Match[str], _: str) -> bool:
    if _MEASURED.search(match.string, match.start(), match.start("value")):
        return False
    return not match["gap"].strip() or bool(match["verb"])  # "rejects the otp after 300000 ms"


def _signs_in(match: re.Match[str], value: str) -> bool:
    return _is_strong(value) and (not is_name(value) or "pass" in match[0].lower())


def _is_of_user(match: re.Match[str], value: str) -> bool:
    if is_name(value) and not _ARE.match(match.string, match.start()):
        return False
    return _is_strong(value) or (match["sign"] == "/" and is_chosen_words(value))


def _is_set(match: re.Match[str], value: str) -> bool:
    if not _is_strong(value):
        return False  # "set the login route to auth/login-v2" is none
    return not is_name(value) or bool(_PRONOUN.search(match[0])) or "passw" in match[0].lower()


def _is_which_one(match: re.Match[str], value: str) -> bool:
    if not _is_strong(value) or is_name(value):
        return False
    return match.string[max(0, match.start() - 16) : match.start()].lower().endswith(_WHICH_ONE)


def _is_used(value: str) -> bool:
    return _is_strong(value) or is_chosen_words(value)


def _is_lock_code(match: re.Match[str], _: str) -> bool:
    """Whether a code lets somebody in; errors, exits and closed sockets have codes too."""
    before = _WORD_BEFORE.search(match.string[max(0, match.start() - 24) : match.start()].lower())
    return before is not None and before[1] in _SECRET_CODES


def _is_your_code(match: re.Match[str], _: str) -> bool:
    return _YOUR_CODE.match(match.string, match.end()) is not None


_YOUR_CODE = re.compile(
    r" is your (?:[\w-]+[ \t]+){0,4}(?:code|pin|otp|passcode|password)\b", re.IGNORECASE
)
_ARE = re.compile(r"(?i)[*_`]{0,3}[ \t]*(?:\w+[ \t]+)?(?:are|is|[:=：])")
_PRONOUN = re.compile(r"(?i)[ \t](?:it|mine|that)[ \t]+(?:to|as)[ \t]")
_POLICY = re.compile(r"password|passphrase|passwort|characters|login|account")
_WHICH_ONE = keys("new|old|current|right|correct|other|temporary|latest")
_WORD_BEFORE = re.compile(r"([a-z0-9-]+)[ \t]+\Z")
_SECRET_CODES = words(
    "verification verify login log-in signin sign-in security one-time confirmation authentication "
    "auth access pin passcode 2fa mfa sms otp unlock door gate alarm entry garage safe lock "
    "voicemail lockbox locker pairing your"
)
_CODE_VALUE = (
    rf"(?i)(?P<gap>[\w'’ -]{{0,30}}?){_COPULA}?[^\S\n]{{0,4}}{_OPENING}(?:[A-Z]-)?"
    rf"(?P<value>\d{{4,10}}|\d{{3}}[ -]\d{{3}})(?![\w.-]*\d)"
)
_BEHIND_CODE = r"(?:word|code)?[ \t]*(?:is|:|=|to sign in is)?[ \t]*(?P<value>\d{4,8})(?![\w.-])"
_ROWS = by_keywords(
    (
        Row(
            _PASSWORD,
            "password|passphrase",
            r"[^\n]{3,120}?:[ \t]{1,4}(?P<value>[^\s\"'`]{6,100})[ \t]*(?=\r?\n|$)",
            place=RowPlace.BEHIND,
            check=_is_prompted,
        ),
        Row(
            _PASSWORD,
            "password|passphrase",
            r"[^\n\"'`=(){}]{0,80}:?[ \t]*\r?\n(?:[ \t]*\r?\n)?[ \t]*"
            r"(?P<value>[A-Za-z0-9]{12,64})[ \t]*(?=\r?\n|$)",
            place=RowPlace.BEHIND,
            check=_is_alone,
        ),
        Row(
            _PASSWORD,
            "passw",
            r"(?i)passw[^\n]{0,40}?[:= \t][\"'`]?(?P<value>[a-z]{4} [a-z]{4} [a-z]{4} [a-z]{4})"
            r"(?=[\"'`\s]|$)",
        ),
        Row(
            _PASSWORD,
            "pass",
            "(?i)"
            r"\b(?:use|used|using|take|try|set|enter|type|nimm|utilise|usa|usar)[ \t]+[\"'`“]?"
            r"(?P<value>[^\s\"'`”]{6,100})[\"'`”]?[ \t]+(?:as|for|als|comme|como)[ \t]+"
            r"(?:[^\W\d]+[ \t]+){0,4}\Z",
            judge=_is_used,
            place=RowPlace.BEFORE,
            back=160,
            whole=True,
        ),
        Row(
            _PASSWORD,
            "log in|login|sign in|connect",
            "(?i)"
            r"[ \t]+(?:with|as|using)[ \t]+[\w.@+-]{2,64}[ \t]*(?:and|with|/|,)[ \t]*"
            r"(?:password[ \t]+|pw[ \t]+)?[\"'`]?(?P<value>[^\s\"'`]{6,100})",
            place=RowPlace.BEHIND,
            check=_signs_in,
            trim=_TRAILING,
        ),
        Row(
            _PASSWORD,
            "admin / |administrator / |root / |user / |ubuntu / |postgres / |guest / | sa / ",
            r"[\"'`]?(?P<value>[^\s\"'`]{6,100})",
            place=RowPlace.BEHIND,
            check=_signs_in,
            trim=_TRAILING,
        ),
        Row(
            _PASSWORD,
            "credenciales|credentials|creds|identifiants|login|zugangsdaten",
            r"[^\n/|]{0,24}?[:\s][\"'`]?(?P<user>[\w.@+-]{2,64})[\"'`]?(?![ \t]+/[^ \t])"
            r"[ \t]{0,3}(?P<sign>[/|:])[ \t]{0,3}[\"'`]?(?P<value>[^\s\"'`,;|]{6,100})",
            place=RowPlace.BEHIND,
            check=_is_of_user,
            trim=_TRAILING,
        ),
        Row(
            _PASSWORD,
            "set |changed |change it|reset ",
            "(?i)"
            r"(?:set|changed?|reset)[ \t]+(?:it|mine|that|(?:the|my|your)[ \t]+[\w ]{2,40}?)"
            r"[ \t]+(?:to|as)[ \t]+[\"'`“]?(?P<value>[^\s\"'`”]{8,100})",
            check=_is_set,
            trim=_TRAILING,
            near=_POLICY,
            around=(240, 0),
        ),
        Row(
            _PASSWORD,
            " one is| one was| one will be",
            r"(?i) one (?:is|was|will be)(?: now)?:?[ \t]+[\"'`“]?(?P<value>[^\s\"'`”]{6,100})",
            check=_is_which_one,
            trim=_TRAILING,
            near=_POLICY,
            around=(240, 240),
        ),
        Row(
            "told-code",
            (
                "verification code|security code|login code|passcode|confirmation code|otp"
                "|authentication code|2fa code|pin code|one-time code|access code"
            ),
            _CODE_VALUE,
            place=RowPlace.BEHIND,
            check=_is_code,
            whole=True,
        ),
        Row(
            "told-code",
            (
                "bestätigungscode|código de verificación|code de vérification|код для входа"
                "|код подтверждения|验证码|驗證碼|認証コード|確認コード|인증번호|인증 코드"
            ),
            _CODE_VALUE,
            place=RowPlace.BEHIND,
            check=_is_code,
        ),
        Row(
            "told-code",
            " is your ",
            r"(?<![\w.])(?:[A-Za-z]-)?(?P<value>\d{4,8})\Z",
            place=RowPlace.BEFORE,
            check=_is_your_code,
            back=12,
        ),
        Row(
            "told-code",
            "pin|otp|one-time pass",
            r"(?i)(?:pin|otp|one-time pass)" + _BEHIND_CODE,
            whole=True,
        ),
        Row("told-code", "code", "(?i)code" + _BEHIND_CODE, check=_is_lock_code, whole=True),
        Row(
            "seed-phrase",
            "phrase|mnemonic|seed",
            r"(?:seed|recovery|mnemonic|wallet|secret recovery|backup)[ -]?(?:phrase|words?)?"
            r"[^\n\"'`]{0,40}?[:\s\"'`]+(?P<value>(?:(?:\d{1,2}[.):][ \t]?)?[a-z]{3,8}"
            r"[ \t,\n]{1,2}){11,23}(?:\d{1,2}[.):][ \t]?)?[a-z]{3,8})\b",
            place=RowPlace.TEXT,
        ),
    )
)
_CODE_LIST = re.compile(
    r"(?:recovery|backup|rescue|scratch|emergency|one-time)[ -](?:codes?|keys?)[^\n]{0,120}\n"
    r"(?P<lines>(?:[^\n]{0,80}\n?){1,24})"
)
_LISTED_CODE = re.compile(
    r"(?m)^[ \t]*(?:\d{1,2}[.):][ \t]+|[-*•][ \t]+)?(?P<value>[0-9A-Za-z]{4,10}"
    r"(?:[- ][0-9A-Za-z]{4,10}){0,4})[ \t]*$"
)
_CODE_LISTS = Keywords(
    (word, None) for word in keys("recovery|backup|rescue|scratch|emergency|one-time")
)

LABELS = _BY_WORD.bits | _ROWS.bits | _CODE_LISTS.bits


def find_labelled(reading: SearchedText) -> Iterator[SecretMatch]:
    """Every secret that a label announces."""
    if reading.found & _BY_WORD.bits:
        yield from _find_told(reading)
    yield from find_by_rows(_ROWS, reading)
    if reading.found & _CODE_LISTS.bits:
        yield from _find_code_lists(reading.text, reading.lowered)


def _find_code_lists(text: str, lowered: str) -> Iterator[SecretMatch]:
    for match in _CODE_LIST.finditer(lowered):
        for code in _LISTED_CODE.finditer(text, *match.span("lines")):
            if any(c.isdigit() for c in code["value"]):
                yield SecretMatch("recovery-code", *code.span("value"), match.start(), code.end())
