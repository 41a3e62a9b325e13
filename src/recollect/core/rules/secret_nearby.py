"""Secrets after a word such as "password", at some distance or in a sentence, in about fifteen
languages. The further away a value is, the more random it must look. A word for something else (an
id, a commit) ends the search."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from recollect.core.rules.secret_rows import COPULA, MEASURED, OPENING, TRAILING
from recollect.core.rules.secret_table import (
    MOST_LABELS,
    Keywords,
    SearchedText,
    SecretMatch,
    begins_word,
    keys,
)
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
_STEMS = Keywords(
    sorted([(s, True) for s in _CHOSEN] + [(s, False) for s in _GENERATED], key=lambda s: len(s[0]))
)
STEM_BITS = _STEMS.bits
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
_CHUNK_REST = re.compile(f"{_CHUNK_CHAR}{{0,{_MOST_CHUNK_CHARS}}}+")
_JOINTS = "[-_./:=$@#*+&?!~]*"
_PLAIN_CHARS = rf"[A-Za-z]?[a-z]*+(?:{_JOINTS}[A-Z]?[a-z]+)*+{_JOINTS}"
_PLAIN = re.compile(_PLAIN_CHARS)
_WORD_ALONE = re.compile(f"[A-Z][a-z]{{0,11}}|{_JOINTS}[a-z]{{0,12}}{_JOINTS}")
# Characters that a plain word does not contain. A capital counts only without a small letter after
# it.
_ODD = re.compile(r"[A-Z0-9%^\x80-\U0010ffff](?:(?<![A-Z])|(?![a-z]))")
_ODD_CHARS = 64
_LEAST_VALUE_CHARS = 8
_CROWDED_CHARS = 32
"""Five keywords in so few characters leave no value between them: the bench's texts lost 0 of 9,000
masks."""
_PAST_WORDS = re.compile(
    rf"(?:{_CHUNK_CHAR.replace('^', '', 1)}++|{_CHUNK_CHAR}{{1,9}}+(?!{_CHUNK_CHAR})"
    rf"|(?={_CHUNK_CHAR}){_PLAIN_CHARS}(?!{_CHUNK_CHAR}))*+{_CHUNK_CHAR}{{10}}"
)
_NAMED = re.compile(r"(?:[A-Za-z_][A-Za-z_.-]{0,30}[0-9]{0,3}[=:]){1,2}")
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
    "authenticity device push sync idempotency identifier ssh known host execution"
)
# After these words, a value of several joined words is not a secret.
_NO_WORDS = words("login auth vault cred salt communit secret")
_HASHED = words("sha md digest hash")
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
# After a word for a secret: `secretName`, `cookie name`, the first line of an Ansible vault.
_NAME_OF = re.compile(r"(?i)[ _-]?names?(?![a-z])|;\d\.\d;AES")
# Fingerprints of OpenPGP keys, addresses of wallets, recipients of age, paths of files, ids of AWS.
_PUBLIC = re.compile(
    r"0x[0-9a-fA-F]{40}|[0-9A-F]{40}|(?:bc|tb|ltc)1[a-z0-9]{20,80}|age1[a-z0-9]{50,80}|mrk-[0-9a-f]{32}"
    r"|[^?=]+/[^/?=]+\.[a-z][a-z0-9]{1,7}|[a-z]{1,8}-[0-9a-f]{17}"
)
# Before the word "key", these are words for an index or a name.
_LOOKUP = words(
    "order file spreadsheet action message duplicate unique record document item row entity event "
    "object bucket cache ccache redis kafka dynamodb etcd socket websocket dns dedupe dedup rsa "
    "dsa ecdsa"
)
_DIGEST = re.compile(r"(?i)(?<![a-z])sha(?:1|224|256|384|512)[:-]|\barn:aws")
_FILE_TAIL = re.compile(
    r"[\w.-]*\.(?:json|ya?ml|enc|log|gz|txt|py|js|ts|rs|go|sh|cfg|ini|zip)(?=[ \t])"
)
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]+")
# Name of a session without a name (`unnamed_session`). The ledger contains such names.
_UNNAMED = re.compile(r"unnamed:[0-9a-f]{16}-[0-9a-f]{8}")


def find_nearby(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every generated or chosen value that follows a word for a secret."""
    text = reading.text
    labels: dict[int, tuple[int, bool]] = {}
    for stem, is_chosen in _STEMS.find_held(
        reading.found
    ):  # a longer stem takes the place of a shorter
        for start in reading.places(stem):
            labels[start] = (start + len(stem), is_chosen)
    starts = [*sorted(labels), *[len(text) + _REACH_CHARS] * MOST_LABELS]
    chunk_end = tried = -1
    for index, start in enumerate(starts[:-MOST_LABELS]):
        end, is_chosen = labels[start]
        if starts[index + 4] - end < _CROWDED_CHARS or (tried >= MOST_LABELS and start < chunk_end):
            continue
        limit = min(len(text), end + _REACH_CHARS, starts[index + 2])
        if limit <= end and limit < len(text):
            continue
        since = max(0, start - _FRONT_CHARS)
        if not (is_chosen or _QUOTED.search(text, since, start)):
            odd = _ODD.search(text, end, limit + _ODD_CHARS)
            if odd is None or not _PAST_WORDS.match(text, end, limit + _LEAST_VALUE_CHARS):
                continue
        if start >= chunk_end:
            chunk_end, tried = _CHUNK_REST.match(text, end).end(), 0  # type: ignore[union-attr]
        tried += 1
        until = max(limit, min(limit + _MOST_CHUNK_CHARS, starts[index + MOST_LABELS]))
        context_text = text[since : until + _FRONT_CHARS]
        label = (start - since, end - since, limit - since, until - since, is_chosen)
        for secret in reading.judge_once(_find_announced, reading, context_text, label):
            yield secret.move(since)


def _find_announced(
    reading: SearchedText, text: str, label: tuple[int, int, int, int, bool]
) -> list[SecretMatch]:
    start, end, limit, until, may_be_chosen = label
    after = _label_end(text, start, end, chosen=may_be_chosen)
    if after is None:
        return []
    matches = [*_in_front(text, start)]
    if text[after : after + 1] == "/":  # inside a URL, only the text directly after the word counts
        limit = min(limit, after + 2)
    for chunk in _CHUNK.finditer(text, after, until):
        if chunk.start() >= limit:
            break
        for offset, value in _candidates(reading, chunk[0], chosen=may_be_chosen):
            first = chunk.start() + offset
            lines = text.count("\n", after, chunk.start())
            if first >= limit or lines > _MOST_LINES:
                return matches
            # If the value is on a later line than the word, it must end that line.
            if lines and _LINE_ENDS.match(text, chunk.end()) is None:
                break
            is_near = first - after <= _FAR_CHARS and len(text[after:first].split()) <= _NEAR_WORDS
            joined = is_near and not lines and text[start:end].lower() not in _NO_WORDS
            if not (
                reading.judge_once(_is_generated, value, is_near)
                or (may_be_chosen and _is_chosen(value, is_near=is_near))
                or (
                    may_be_chosen
                    and joined
                    and is_chosen_words(value)
                    and _is_set(text, first, value)
                )
            ) or _has_name(text, after, first):
                continue
            gap_words = _words(text, after, first)
            if len(gap_words) > _MOST_GAP_WORDS or not _OTHER.isdisjoint(gap_words):
                return matches
            last = first + len(value)
            matches.append(SecretMatch("near-secret", first, last, start, last))
    return matches


def _candidates(reading: SearchedText, chunk: str, *, chosen: bool) -> list[tuple[int, str]]:
    """Return the values in a chunk that are secrets if they are near a word for one."""
    plain = _WORD_ALONE if chosen else _PLAIN
    if plain.fullmatch(chunk) or _UNNAMED.fullmatch(chunk) or _DIGEST.search(chunk):
        return []
    if ".." in chunk:  # the author shortened the value
        return []
    values: list[tuple[int, str]] = []
    if "://" not in chunk:
        start = len(chunk) - len(chunk.lstrip("=:?&"))
        name_match = _NAMED.match(chunk, start)
        first = start if name_match is None else name_match.end()
        values.append((first, chunk[first:].rstrip(".,:!?")))
    values += [(m.start(), m[0].rstrip(".%-/")) for m in _INNER.finditer(chunk)]
    return [
        (first, value)
        for first, value in dict.fromkeys(values)
        if len(value) >= _LEAST_VALUE_CHARS
        and (
            reading.judge_once(_is_generated, value, True)
            or (chosen and (_is_chosen(value, is_near=True) or is_chosen_words(value)))
        )
    ]


def _has_name(text: str, after: int, first: int) -> bool:
    name_match = _OWN_NAME.search(text, after, first)
    if name_match is None:
        return False
    named = _words(name_match["name"], 0, len(name_match["name"]))
    return _HOLDING.isdisjoint(named) or named[-1] in _HASHED


def _label_end(text: str, start: int, end: int, *, chosen: bool) -> int | None:
    after = _word_end(text, start, end)
    if after is None or _NAME_OF.match(text, end):
        return None
    before = _words(text, max(0, start - 32), start)[-3:] if _is_joined(text, start) else []
    is_key = text[end - 1] in "yY"
    if text.startswith("auth0|", start):  # the id of a user
        return None
    if not _OTHER.isdisjoint(before) or (is_key and not _LOOKUP.isdisjoint(before[-1:])):
        return None
    path = text[max(0, start - 80) : start]
    if path.endswith("/") and text.startswith(":", end):  # an image: `registry/auth:v2`
        return None
    if path.endswith(":") and "arn:aws" in path:
        return None
    if not before and text.startswith("key", start) and text[end : end + 2] not in _QUOTED_KEY:
        return None
    following = text[after : after + 1]
    if following == "." and _FILE_TAIL.match(text, after, after + 64):
        return None
    if following.isalnum() or following in ("-", "_", "."):  # the word is part of a longer name
        after = _NAME.match(text, after).end()  # type: ignore[union-attr]
        foreign_words = set(_words(text, end, after)) & (_OTHER | _HASHED)
        if foreign_words and not (
            chosen and foreign_words <= _HASHED
        ):  # but find `password_sha256`
            return None
    return after


def _in_front(text: str, start: int) -> Iterator[SecretMatch]:
    since = max(0, start - _FRONT_CHARS)
    since = max(since, text.rfind("\n", since, start) + 1)
    for match in _QUOTED.finditer(text, since, start):
        value = match["value"]
        front_words = _words(text, max(since, match.start() - 16), match.start())
        if (
            is_random(value)
            and is_token_value(value, quoted=True, least_chars=20)
            and len(_words(text, match.end(), start)) <= _MOST_FRONT_WORDS
            and _OTHER.isdisjoint(front_words)
            and not _has_name(text, since, match.start("value"))
        ):
            yield SecretMatch("near-secret", *match.span("value"), match.start(), start)


def _is_joined(text: str, start: int) -> bool:
    return start > 0 and (text[start - 1].isalpha() or text[start - 1] in " _./-?&")


def _words(text: str, start: int, end: int) -> list[str]:
    return [word.lower() for word in _WORD.findall(text, start, end)]


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
    name = text[start : _RUN.match(text, end, end + 40).end()]  # type: ignore[union-attr]
    if start and text[start - 1] in _RUN_CHARS:
        lead = text[max(0, start - 40) : start]
        name = lead[len(lead.rstrip(_RUN_CHARS)) :] + name
    if len(name) >= _SHORT_PART_CHARS and (is_random(name) or _BLOB.fullmatch(name)):
        return None
    return tail.end()


def _starts_part(text: str, start: int) -> bool:
    return text[start].isupper() and (text[start - 1].islower() or text[start + 1].isupper())


def _is_generated(value: str, is_near: bool) -> bool:  # noqa: FBT001 - a cache key
    if len(value) < (10 if is_near else 16) or is_uuid(value):
        return False
    if _PUBLIC.fullmatch(value):
        return False
    if _HEX.fullmatch(value):
        return is_near and len(value) >= 20 and is_token_value(value, quoted=True)
    if is_near and _GROUPS.fullmatch(value) and any(map(str.isdigit, value)):
        return not is_name(value)
    if "/" in value and (len(value) < _SHORT_PART_CHARS or (value[0] == "/" and value[-1] != "=")):
        return False
    token = max(_PART.split(value), key=len)
    if len(token) < _SHORT_PART_CHARS or not is_random(token):
        token = value
    if not is_random(token) or not is_token_value(token, quoted=True) or is_name(value):
        return False
    return "/" not in value or not is_reference(max(value.split("/"), key=len), quoted=True)


def _is_chosen(value: str, *, is_near: bool) -> bool:
    signs = len(_SIGN.findall(value))
    digits = _DIGIT.search(value) is not None
    classes = (value != value.lower()) + (value != value.upper()) + digits
    if classes + (signs > 0) < 3 or len(value) < (8 if is_near else 10) or not value.isascii():
        return False
    if "/" in value or value[0] in "@-":
        return False
    if not (is_near and signs > 0 and (digits or signs > 1)) and not is_random(value):
        return False
    return not is_name(value) and is_password_value(value, quoted=True)


_TOLD_REACH_CHARS = 110
# Text between the label and the value in a sentence: nothing, or words and then a verb or a sign.
_LEAST_GAP_CHARS = 2
_ENGLISH_VERBS = words("is are was now")
_GAP = r"(?:[^\S\n]{1,3}(?:[^\s:=：\"'’`「『“«,;.!?，。]|['’](?=\w)){1,24}+){0,7}?,?"
_RAW_CHAR = r"[^\s\"'`」』”»’，。；、）<>]"
_MOST_RAW_CHARS = 200
_RAW = f"(?P<value>{_RAW_CHAR}{{4,{_MOST_RAW_CHARS}}})"
_RAW_REST = re.compile(_RAW_CHAR + "*+")
# The least that a password has: six characters, and a sign or digit that ends no sentence, or a
# capital inside.
_STRONG = re.compile(
    r"(?=[!#-&*+\--:=?-Z\\\]-_a-z}~]{6})[A-Z]*+[a-z]*+(?=[.:!?)\]}*_]*+[!#-&*+\--:=?-Z\\\]-_a-z}~])"
)
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
_TOLD = Keywords((word, "password") for word in sorted(keys(_TOLD_WORDS)))
TOLD_BITS = _TOLD.bits


def _leads(match: re.Match[str], after: int) -> bool:
    verb, value = match["verb"].lower(), match["value"]
    if verb in _ENGLISH_VERBS:
        return "-" not in value  # not a value: "the password is case-sensitive"
    is_apart = match.start("verb") - after > _LEAST_GAP_CHARS
    if is_apart or verb not in ":=：→->=>–—":
        return True
    ends_line = match.end() == len(match.string) or match.string[match.end()] in "\r\n"
    return ends_line and ("-" in value or "_" in value)


def find_in_sentences(reading: SearchedText) -> Iterator[SecretMatch]:
    """Find every password in a sentence, after a word such as "password"."""
    text, lowercase_text = reading.text, reading.lowercase_text
    # A longer word takes the place of a shorter.
    labels = {
        offset: word
        for word, _ in _TOLD.find_held(reading.found)
        for offset in reading.places(word)
    }
    run_end = tried = strong = searched_until = -1
    starts = [*sorted(labels), *[len(text)] * MOST_LABELS]
    for index, offset in enumerate(starts[:-MOST_LABELS]):
        word = labels[offset]
        part = word == "passwort" and lowercase_text[offset - 1] == "-"
        if word[0].isascii() and not part and not begins_word(lowercase_text, offset):
            continue
        after = offset + len(word)
        reach = min(after + _TOLD_REACH_CHARS, starts[index + MOST_LABELS])
        end = reach + _LEAST_VALUE_CHARS
        if strong < after:  # otherwise, the password that an earlier label found is after this too
            strong_match = _STRONG.search(text, max(after, searched_until), end)
            searched_until = end - _LEAST_VALUE_CHARS
            strong = -1 if strong_match is None else strong_match.start()
        if not 0 <= strong < end:
            continue
        if word.startswith("pass") and lowercase_text.startswith("s", after):
            after += 1
        if offset >= run_end:
            run_end, tried = _RAW_REST.match(text, offset).end(), 0  # type: ignore[union-attr]
        tried += 1
        if tried <= MOST_LABELS:
            following = text[after - 1 : after + _TOLD_REACH_CHARS + _MOST_RAW_CHARS + 1]
            match = reading.judge_once(_find_told, following, word)
            if match is not None:
                yield match.move(after - 1)


def _find_told(text: str, label: str) -> SecretMatch | None:
    """Find the password that the label tells. The label ends with the first character."""
    after = 1
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
        match = grammar.match(text, after, limit + _MOST_RAW_CHARS)
        if match is None or match.start("value") > limit:
            continue
        if MEASURED.search(text, after, match.start("value")):
            continue
        value = _ASCII_RUN.match(match["value"])[0].rstrip(TRAILING)  # type: ignore[index]
        if label == "pass":  # "pass" may be a verb with a name in code as its object
            is_secret = is_strong(value) and not is_name(value)
        else:
            leads = grammar is _TELLS and _leads(match, after)
            is_secret = is_strong(value) or (leads and is_chosen_words(value))
        if is_secret:
            start = match.start("value")
            end = start + len(value)
            return SecretMatch("told-password", start, end, match.start(), max(end, match.end()))
    return None
