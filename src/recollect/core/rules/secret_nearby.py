"""Secrets after a word such as "password", at some distance or in a sentence, in about fifteen
languages. The further away a value is, the more random it must look. A word for something else (an
id, a commit) ends the search."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from recollect.core.rules.secret_rows import COPULA, MEASURED, OPENING, TRAILING
from recollect.core.rules.secret_table import Keywords, SearchedText, SecretMatch, begins_word, keys
from recollect.core.rules.secret_values import (
    is_chosen_words,
    is_name,
    is_password_value,
    is_random,
    is_reference,
    is_strong,
    is_token_value,
    is_uuid,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Lower-case stems, anywhere in a word or a name. The first announce passwords that people choose.
_CHOSEN = keys(
    'pass|"assword|pwd|secret|cred|login|psk|phrase|pw|auth|mot de p|clave|contrase|senha|kennwort'
    "|wachtwoord|heslo|salasana|mdp|sandi|vault|key content|communit|salt|lösenord|hasło|şifre"
    "|mật khẩu|jelszó|парол|密码|密碼|口令|暗号|パスワード|暗証番号|비밀번호|비번|암호|패스워드"
    "|كلمة|पासवर्ड|รหัสผ่าน|κωδικ|סיסמ|секрет|シークレット"
)
_GENERATED = keys(
    'token|key|cookie|sessid|session":|code":'
    "|licen|seed|recovery|backup code|otp|bearer|webhook|invite|hmac|jwt|unlock"
    "|chave|jeton|sleutel|chiave|pin |pin:|magic|access|wallet|mnemonic"
    "|ключ|токен|код|schlüssel|clé|密钥|密鑰|金鑰|令牌|秘钥|キー|トークン|키|토큰|कुंजी"
)
_STEMS = Keywords([(stem, True) for stem in _CHOSEN] + [(stem, False) for stem in _GENERATED])
_REACH_CHARS = 120
_FAR_CHARS = 30
_MOST_LINES = 2
_QUOTES = "\"'「『“«‘"
_OF_NAME = re.compile(r"\Z|[-._]|\\{0,8}[\"']?[ \t]{0,4}[:=\](]")
# White space is listed, because such a character class needs only one look-up per character.
_CHUNK_CHAR = (
    r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
    r"\\\"'`<>,;|(){}\[\]，。；、）「」『』“”«»‘’]"
)
_MOST_CHUNK_CHARS = 600
_CHUNK = re.compile(f"{_CHUNK_CHAR}{{8,{_MOST_CHUNK_CHARS}}}+")
_JOINTS = "[-_./:=$@#*+&?!~]*"
_PLAIN_CHARS = rf"[A-Za-z]?[a-z]*+(?:{_JOINTS}[A-Z]?[a-z]+)*+{_JOINTS}"
_PLAIN = re.compile(_PLAIN_CHARS)
_WORD_ALONE = re.compile("[A-Za-z]?[a-z]{0,11}")
_CHUNK_REST = re.compile(_CHUNK_CHAR + "{0,600}+")
# Characters that a plain word does not contain. A capital counts only without a small letter after
# it.
_ODD = re.compile(r"[A-Z0-9%^\x80-\U0010ffff](?:(?<![A-Z])|(?![a-z]))")
_ODD_CHARS = 64
_PAST_WORDS = re.compile(
    rf"(?:{_CHUNK_CHAR.replace('^', '', 1)}++|{_CHUNK_CHAR}{{1,9}}+(?!{_CHUNK_CHAR})"
    rf"|(?={_CHUNK_CHAR}){_PLAIN_CHARS}(?!{_CHUNK_CHAR}))*+{_CHUNK_CHAR}{{10}}"
)
_NAMED = re.compile(r"(?:[A-Za-z_][A-Za-z_.-]{1,30}[0-9]{0,3}[=:]){1,2}")
_INNER = re.compile(r"[A-Za-z0-9+/_~.%-]{10,}+={0,2}")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TAIL = re.compile(r"[a-z]{0,16}")
_UPPER_TAIL = re.compile(r"[A-Z]{0,16}(?![a-z])")
_TAILS = words(
    "s word words wd phrase phrases code codes wort worts keys ential entials entication enticate "
    "orization orize se ses ence encer y ies es id nonce ure ures ption "
)
_NAME = re.compile(r"[\w.-]{0,64}+")
_LINE_ENDS = re.compile(r"[^\w\n]{0,8}(?:</[\w:.-]{1,40}>)?[^\w\n]{0,4}(?:\n|\Z)")
_ENDINGS = ("pw", "pass", "auth", "secret", "token", "PASS", "TOKEN", "SECRET")
_OTHER_WORDS = ("bypass", "ompass", "rpass")
_BLOB = re.compile(r"[A-Za-z0-9+/]{48,}")
_RUN_CHARS = string.ascii_letters + string.digits + "+/_-"
_RUN = re.compile(r"[A-Za-z0-9+/_-]*")
_OTHER = words(
    "commit md crc sha id ids uuid guid digest checksum etag "
    "version revision rev fingerprint integrity index build ref public pub publishable cache kid "
    "fingerprints trace span parent request tx transaction address image layer blob tree object "
    "foreign primary sort partition cursor page next continuation etags href src model csrf xsrf "
    "authenticity device push ssh known host execution"
)
# After these words, a value of several joined words is not a secret.
_NO_WORDS = words("login auth vault cred salt communit secret")
_HASHED = words("sha md digest")
_OWN_NAME = re.compile(
    r"[\"'](?P<name>[\w.-]{1,40})\\{0,8}[\"'][ \t]{0,4}(?::|=>?)[ \t]{0,4}\\{0,8}[\"']?\Z"
)
_HOLDING = words(
    "value val default result content string text data plaintext password pass secret token key "
    "code phrase"
)
_MOST_GAP_WORDS = 8
_NEAR_WORDS = 3
_SIGN = re.compile(r"[!@#$%^&*+=?]")
_DIGIT = re.compile(r"\d")
_PART = re.compile(r"[-_.:]")
_SHORT_PART_CHARS = 20
_QUOTED_KEY = ('="', "='")
_GROUPS = re.compile(r"[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){3,10}")
_FRONT_CHARS = 100
_MOST_FRONT_WORDS = 4
_QUOTED = re.compile(r"(?P<quote>[\"'])(?P<value>[A-Za-z0-9+/_=.-]{20,90})(?P=quote)")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
# Name of a session without a name (`unnamed_session`). The ledger contains such names.
_UNNAMED = re.compile(r"unnamed:[0-9a-f]{16}-[0-9a-f]{8}")


def find_nearby(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every generated or chosen value that follows a word for a secret."""
    text = reading.text
    stems = _STEMS.held(reading.found)
    hits = sorted(
        [(at, at + len(stem), chosen) for stem, chosen in stems for at in reading.places(stem)]
    )
    for at, (start, end, chosen) in enumerate(hits):
        limit = min(len(text), end + _REACH_CHARS)
        if at + 2 < len(hits):
            limit = min(limit, hits[at + 2][0])
        if limit <= end and limit < len(text):
            continue
        if chosen or _has_value(text, start, end, limit):
            yield from _behind(text, start, end, limit, chosen=chosen)


def _behind(text: str, start: int, end: int, limit: int, *, chosen: bool) -> Iterator[SecretMatch]:
    after = _label_end(text, start, end, chosen=chosen)
    if after is None:
        return
    if text[after : after + 1] == "/":  # inside a URL, only the text directly after the word counts
        limit = min(limit, after + 2)
    yield from _in_front(text, start)
    for first, value, lines in _values_behind(text, after, limit, chosen=chosen):
        near = first - after <= _FAR_CHARS and len(text[after:first].split()) <= _NEAR_WORDS
        if _is_generated(value, near=near) or (
            chosen
            and (
                _is_chosen(value, near=near)
                or (
                    near
                    and not lines
                    and text[start:end].lower() not in _NO_WORDS
                    and is_chosen_words(value)
                    and _is_set(text, first, value)
                )
            )
        ):
            if _has_name(text, after, first):
                continue
            named = _words(text, after, first)
            if len(named) > _MOST_GAP_WORDS or not _OTHER.isdisjoint(named):
                return
            yield SecretMatch("near-secret", first, first + len(value), start, first + len(value))


def _has_value(text: str, start: int, end: int, limit: int) -> bool:
    if _ODD.search(text, end, limit + _ODD_CHARS):
        until = _CHUNK_REST.match(text, limit).end()  # type: ignore[union-attr]
        if _PAST_WORDS.match(text, end, until) is not None:
            return True
    return _QUOTED.search(text, max(0, start - _FRONT_CHARS), start) is not None


def _has_name(text: str, after: int, first: int) -> bool:
    own = _OWN_NAME.search(text, after, first)
    return own is not None and _HOLDING.isdisjoint(_words(own["name"], 0, len(own["name"])))


def _label_end(text: str, start: int, end: int, *, chosen: bool) -> int | None:
    after = _word_end(text, start, end)
    if after is None:
        return None
    before = _words(text, max(0, start - 32), start)[-3:] if _is_joined(text, start) else []
    if not _OTHER.isdisjoint(before):
        return None
    if not before and text.startswith("key", start) and text[end : end + 2] not in _QUOTED_KEY:
        return None
    following = text[after : after + 1]
    if following.isalnum() or following in ("-", "_", "."):  # the word is part of a longer name
        after = _NAME.match(text, after).end()  # type: ignore[union-attr]
        others = set(_words(text, end, after)) & _OTHER
        if others and not (chosen and others <= _HASHED):  # but find `password_sha256`
            return None
    return after


def _values_behind(
    text: str, after: int, limit: int, *, chosen: bool
) -> Iterator[tuple[int, str, int]]:
    plain = _WORD_ALONE if chosen else _PLAIN
    for chunk in _CHUNK.finditer(text, after, limit + _MOST_CHUNK_CHARS):
        if chunk.start() >= limit:
            return
        if plain.fullmatch(chunk[0]) or _UNNAMED.fullmatch(chunk[0]):
            continue
        lines = text.count("\n", after, chunk.start())
        if lines > _MOST_LINES:
            return
        # If the value is on a later line than the word, it must end that line.
        if lines and _LINE_ENDS.match(text, chunk.end()) is None:
            continue
        for first, value in _values(text, chunk):
            if first < limit:
                yield first, value, lines


def _in_front(text: str, start: int) -> Iterator[SecretMatch]:
    since = max(0, start - _FRONT_CHARS)
    since = max(since, text.rfind("\n", since, start) + 1)
    for match in _QUOTED.finditer(text, since, start):
        value = match["value"]
        own = _words(text, max(since, match.start() - 16), match.start())
        if (
            is_random(value)
            and is_token_value(value, quoted=True, least_chars=20)
            and len(_words(text, match.end(), start)) <= _MOST_FRONT_WORDS
            and _OTHER.isdisjoint(own)
            and not _has_name(text, since, match.start("value"))
        ):
            yield SecretMatch("near-secret", *match.span("value"), match.start(), start)


def _is_joined(text: str, start: int) -> bool:
    return start > 0 and (text[start - 1].isalpha() or text[start - 1] in " _./-?&")


def _words(text: str, start: int, end: int) -> list[str]:
    return [word.lower() for word in _WORD.findall(text, start, end)]


def _values(text: str, chunk: re.Match[str]) -> Iterator[tuple[int, str]]:
    start, end = chunk.span()
    if ".." in chunk.group():  # the author shortened the value
        return
    start += len(chunk.group()) - len(chunk.group().lstrip("=:"))
    if "://" not in chunk.group():
        named = _NAMED.match(text, start, end)
        first = start if named is None else named.end()
        value = text[first:end].rstrip(".,:!?")
        if len(value) >= 8:
            yield first, value
    for inner in _INNER.finditer(text, start, end):
        yield inner.start(), inner.group().rstrip(".%-/")


def _is_set(text: str, first: int, value: str) -> bool:
    end = first + len(value)
    if text[first - 1] in _QUOTES:
        return _OF_NAME.match(text, end) is None
    before = text[max(0, first - 8) : first].rstrip(" \t")
    if before[-1:].isalnum():  # no sign before the value, as in a configuration file
        return value[-1].isdigit() and text[end : end + 1] in ("", "\n")
    if before[-1:] not in (":", "=", ">") or ("_" in value and not value[-1].isdigit()):
        return False
    return text[end : end + 1] in ("", "\n") or len(_WORD.findall(value)) > 2


def _word_end(text: str, start: int, end: int) -> int | None:
    if not text[end - 1].isascii() or not text[end - 1].isalpha():
        return end
    inside = start and text[start - 1 : end].isalpha()
    if (
        inside
        and (not text.startswith(_ENDINGS, start) or text[start - 3 : end].endswith(_OTHER_WORDS))
        and not _starts_part(text, start)
    ):
        return None
    tail = (_UPPER_TAIL if text[end - 1].isupper() else _TAIL).match(text, end)
    if tail is None or (tail[0] and tail[0].lower() not in _TAILS):
        return None
    lead = text[max(0, start - 40) : start]
    name = lead[len(lead.rstrip(_RUN_CHARS)) :] + text[start:end]
    name += _RUN.match(text, end, end + 40)[0]  # type: ignore[index]
    if len(name) >= _SHORT_PART_CHARS and (is_random(name) or _BLOB.fullmatch(name)):
        return None
    return tail.end()


def _starts_part(text: str, start: int) -> bool:
    return text[start].isupper() and (text[start - 1].islower() or text[start + 1].isupper())


def _is_generated(value: str, *, near: bool) -> bool:
    if len(value) < (10 if near else 16) or is_uuid(value):
        return False
    if _HEX.fullmatch(value):
        return near and len(value) >= 20 and is_token_value(value, quoted=True)
    if near and _GROUPS.fullmatch(value) and any(map(str.isdigit, value)):
        return not is_name(value)
    if "/" in value and (len(value) < _SHORT_PART_CHARS or (value[0] == "/" and value[-1] != "=")):
        return False
    if "/" in value and is_reference(max(value.split("/"), key=len), quoted=True):
        return False
    longest = max(_PART.split(value), key=len)
    if len(longest) >= _SHORT_PART_CHARS and is_random(longest):
        return is_token_value(longest, quoted=True) and not is_name(value)
    if not is_random(value) or not is_token_value(value, quoted=True, least_chars=10):
        return False
    return not is_name(value)


def _is_chosen(value: str, *, near: bool) -> bool:
    signs = len(_SIGN.findall(value))
    digits = _DIGIT.search(value) is not None
    classes = (value != value.lower()) + (value != value.upper()) + digits
    if classes + (signs > 0) < 3 or len(value) < (8 if near else 10) or not value.isascii():
        return False
    if (
        "/" in value
        or value[0] in "@-"
        or is_name(value)
        or not is_password_value(value, quoted=True)
    ):
        return False
    return is_random(value) or (near and signs > 0 and (digits or signs > 1))


_TOLD_REACH_CHARS = 110
# Text between the label and the value in a sentence: nothing, or words and then a verb or a sign.
_LEAST_GAP_CHARS = 2
_ENGLISH_VERBS = words("is are was now")
_GAP = r"(?:[^\S\n]{1,3}(?:[^\s:=：\"'’`「『“«,;.!?，。]|['’](?=\w)){1,24}+){0,7}?,?"
_RAW = r"(?P<value>[^\s\"'`」』”»’，。；、）<>]{4,200})"
_TELLS = re.compile(
    rf"{_GAP}[^\S\n]{{0,3}}{COPULA}[^\S\n]{{0,3}}[:：]?[^\S\n]{{0,3}}{OPENING}{_RAW}", re.IGNORECASE
)
_AT_ONCE = re.compile(
    rf"[*_`]{{0,3}}(?:[^\S\n]{{0,3}}\d{{1,2}})?"
    rf"(?:[^\S\n]?\[[^\]\n]{{0,40}}\])?[^\S\n]{{0,3}}[:=：]?[^\S\n]{{0,3}}{OPENING}{_RAW}"
)
_ENDING = re.compile(r"[^\W\d_a-zA-Z\u4e00-\u9fff]{0,6}")
_UNSPACED, _LEAST_UNSPACED_CHARS = "\u2e80", 8
"""In scripts without spaces, a value of at least this length may directly follow its label."""
_PARTICLES = "はがを是为為은는이가"
_ASCII_RUN = re.compile(r"[!-~]*")
_TOLD_WORDS = (
    "pass|password|passwd|passcode|passphrase|passwort|kennwort|contrasena|clave|mot de passe|senha"
    "|palavra-passe|wachtwoord|salasana|kata sandi|heslo|pw|pwd|mdp|contraseña|lösenord|hasło|şifre"
    "|mật khẩu|jelszó|парол|кодовое слово|密码|密碼|口令|暗号|パスワード|暗証番号|비밀번호|비번"
    "|암호|패스워드|كلمة المرور|كلمة السر|पासवर्ड|รหัสผ่าน|κωδικός|סיסמה"
)
_TOLD = Keywords((word, "password") for word in keys(_TOLD_WORDS))


def _leads(match: re.Match[str], after: int) -> bool:
    verb, value = match["verb"].lower(), match["value"]
    if verb in _ENGLISH_VERBS:
        return "-" not in value  # not a value: "the password is case-sensitive"
    apart = match.start("verb") - after > _LEAST_GAP_CHARS
    if apart or verb not in ":=：→->=>–—":
        return True
    ends_line = match.end() == len(match.string) or match.string[match.end()] in "\r\n"
    return ends_line and ("-" in value or "_" in value)


def find_in_sentences(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every password in a sentence, after a word such as "password"."""
    text, lowered = reading.text, reading.lowered
    for word, _ in _TOLD.held(reading.found):
        for at in reading.places(word):
            part = word == "passwort" and lowered[at - 1] == "-"
            if word[0].isascii() and not part and not begins_word(lowered, at):
                continue
            after = at + len(word)
            if word.startswith("pass") and lowered.startswith("s", after):
                after += 1
            match = _announced_secret(text, after, is_verb=word == "pass")
            if match is not None:
                yield match


def _announced_secret(text: str, after: int, *, is_verb: bool) -> SecretMatch | None:
    limit = min(len(text), after + _TOLD_REACH_CHARS)
    following = text[after : after + 1]
    if following and (following in "_-./$+&" or (following.isascii() and following.isalnum())):
        run = _ASCII_RUN.match(text, after)
        unspaced = text[after - 1] >= _UNSPACED
        if not unspaced or run is None or len(run[0]) < _LEAST_UNSPACED_CHARS:
            return None  # a different word, such as `password_hash` or `tokenizer`
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
        if MEASURED.search(text, after, match.start("value")):
            continue
        value = _ASCII_RUN.match(match["value"])[0].rstrip(TRAILING)  # type: ignore[index]
        if is_verb:  # "pass" may be a verb with a name in code as its object
            found = is_strong(value) and not is_name(value)
        else:
            leads = grammar is _TELLS and _leads(match, after)
            found = is_strong(value) or (leads and is_chosen_words(value))
        if found:
            start = match.start("value")
            end = start + len(value)
            return SecretMatch("told-password", start, end, match.start(), max(end, match.end()))
    return None
