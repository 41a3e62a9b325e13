"""Decides whether a value looks like a secret, or like a placeholder, a reference or a word. The
name of the value is not considered. The time is linear in the value's length."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from operator import add

MASK_OPENING = "[REDACTED:"
MASK = re.compile(r"\[REDACTED:[a-z0-9-]{1,40}\]")


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILLER_RUN = re.compile(r"([xX*#.•?_~-])\1{5}|([a-z])\2{9}|0{16}|[xX]{4}[-_.][xX]{4}")
_LONGEST_SAMPLE_CHARS = 64
_SEQUENCES = ("abcdefghijklmnopqrst", "ABCDEFGHIJKLMNOPQRST", "12345678901234")

# Each alternative begins with a letter, so that `re` skips other places: a twentieth of the time.
_PLACEHOLDER_WORD = re.compile(
    r"example|placeholder|change[-_ ]?(?:me|it|this)|redacted|dummy|insert[-_ ]|replace[-_ ]"
    r"|todo(?<=^todo)|fixme|your(?:(?<!\wyour)(?![a-z])|[-_ ])|_here\b"
    r"|my[-_](?:secret|token|pass|api|key)|fake[-_](?<!\wfake[-_])|not[-_]a[-_]|secret[-_]?value"
    r"|lorem|sample[-_ ]"
)
_PLAIN_WORDS = words(
    "public private "
    "none null nil undefined true false yes no string str bytes number int integer bool object any "
    "optional required hidden masked removed omitted secret secrets token tokens password passwd "
    "pass passphrase pwd key apikey credential credentials username user admin test testing foo "
    "bar baz value default empty unset auth basic bearer oauth2 oauth1 oauth sha1 sha256 sha512 "
    "md5 base64 utf8 utf-8 hs256 rs256 es256 hs512 ed25519 x509 ipv4 ipv6 http2 k8s s3"
)
_REFERENCE = re.compile(
    r"""^(?:
        \$\w+$ | \$[({]? [A-Za-z_][\w.:-]*[)}]?$ | \$\{ | \$\( | \{\{ | \{%
        | <[^>]{0,80}>?$ | <% | %[\w(]*[)%]?[sd]?$ | %\w+% | \#\{ | \{[\w.\s-]{0,40}\}$ | @\w+@?$
        | !(?:vault|secret|ref|env|sub|getatt|importvalue|include)\b | ref\+\w+  # tags in YAML
        | (?:env|var|vault|secret|ssm|arn|file|op|data|sha256|sha512|md5|urn|git|npm|https?|agent):
        | [\^(]{0,2}(?:\.[*+]|\[\^|\\[SwdW])  # a pattern
        | (?:process|os|sys|env|config|settings|self|this|cfg|conf|ctx|opts|options|params|args
            |request|req|res|response|data|props|state|user|app|secrets?|vars?|local|module)
          [.\[]
    )""",
    re.VERBOSE,
)
_TEMPLATE = re.compile(r"\$\{|\{\{|\}\}|<%|%>|\$\(|#\{|%\(")
_CALL = re.compile(r"^[A-Za-z_][\w.:]*(?:[({]|\[[\w'\"])")
_PATH = re.compile(
    r"^(?:\.{0,2}/|~/|[A-Za-z]:[\\/])|://|^[\w.@-]++(?:/(?=[\w.@-]*[a-z]{3})[\w.@-]++){2,}+$"
)
_FILE_NAME = re.compile(
    r"\.(?:py|js|ts|tsx|jsx|json|ya?ml|toml|md|txt|html?|css|go|rs|java|rb|php|sh|c|h|cpp|cs|png"
    r"|jpe?g|gif|svg|pem|crt|key|env|ini|cfg|conf|log|xml|lock|com|org|net|io|dev|local)(?::\d+)?$"
)
_DATE_OR_VERSION = re.compile(
    r"^[v^~=<>]{0,2}\d{1,4}(?:[.\-/:T ]\d{1,4})+"
    r"(?:(?<=:\d\d:\d\d)[+-]\d\d:\d\d|[.\-+]?[a-z]*\d*Z?)$"
)
_PACKAGE_VERSION = re.compile(r"^[A-Za-z@][\w.:/@-]*[-@/:]v?\d{1,4}\.\d{1,4}[\w.+-]{0,20}$")
_NUMBERED_WORDS = re.compile(r"^(?:[A-Za-z]{2,}|\d+)(?:[-_.:/](?:[A-Za-z]{3,}|\d+|v\d+$)){1,12}+$")
_PLURAL_WORD = r"(?:[A-Z]?[a-z]{2,}|[A-Z]{2,}|[A-Za-z])\d{0,3}"
_IDENTIFIER = re.compile(rf"^(?=[A-Za-z])(?:[-_.:/ ]{{0,2}}{_PLURAL_WORD}){{1,25}}+[?!]?$")
_UUID = re.compile(r"^\{?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}?$")
_UUIDS = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_JOINTS = re.compile(r"[-_./:+@#=]+")
_NAME_PART = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+|[A-Z][a-z]+[A-Z][a-z]+)?\d{0,2}$|\d+$|v\d+")
_DIGIT = re.compile("[0-9]")
_LETTER = re.compile(r"[^\W\d_]")
_SPACE = re.compile(r"\s")
_SYMBOL = re.compile(r"[^\w.:/\\-]")
_NUMBERED_WORD = re.compile("[A-Za-z]*[0-9]*[a-z]{0,2}")
_SEPARATORS = re.compile(r"[-_.:/]")
_BRACKET = re.compile(r"[(){}\[\]|]")
_CLASS_RUN = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^a-zA-Z0-9]+")

_ENTROPY_FLOOR_BITS = 3.0
_SHORT_ENTROPY_FLOOR_BITS = 2.6
_SHORT_VALUE_CHARS = 20
_PLACEHOLDER_ENTROPY_BITS = 2.2
# Words in camelCase have more than 2.7 characters per run of one class, random text about 1.6.
_WORDY_RUN_CHARS = 2.6

# Over four fifths of the letter pairs in English words and in names in code are in this list, but
# only a third of random pairs.
_COMMON_PAIRS = words(
    "th he in er an re nd at on nt ha es st en ed to it ou ea hi is or ti as te et ng of al de se "
    "le sa si ar ve ra ld ur io ne me li ll be ic ro la co el ma ri ch om ec ot di ce us ta no ss "
    "ca pe ho wa ge mo so ac ns il na ad lo pr ct ow po un ul im em ee id ie tr wi ut mp ol rs ke "
    "ir am we sh pa ai nc fi bl ay av ef lt op do tu go pl ey ev ag bu fo sp fr ig wh ab ap gh ly "
    "ty ry iv bo rt up su cl gr br cr dr ki rd rk rm rn ck ff tt pp mm nn oo gi gu ex eg ep ew ft "
    "ga ib if ip ob od og oc os ov uc ud ug um ua ub ys yp sc sk sl sm sn sw tw va vi vo ye yo ok "
    "ks ls ms ts ds xt xp nk ni qu ja js py db ui ux my by gs ps dd bb gg rr cc ph rl ws"
)
_LETTERS = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}")
_LEAST_PAIRS = 5
_WORDY_PAIR_SHARE = 0.55
_RANDOM_PAIR_SHARE = 0.6
_WORDY_SHARE = 0.3
_LEAST_LETTERS_ALONE = 12

# Google API keys in public test code, from gitleaks' allowlist, which names the Firebase Android
# SDK as their source. gitleaks also uses them as examples of false alarms. The redaction benchmark
# contains those, so it also reports its result without this list. The list holds 16 hex digits of
# each key's SHA-256, not the key.
_PUBLISHED_SAMPLES: frozenset[str] = words(
    "2037abcaffb2b777 3f370c9dd8225c63 e4a5542bb7fd7b67 a19f89ab3555eac1 eb540d2b6ee2a0a4 "
    "37f8f09bdf12c2f2 8731261cb72d8626 49f777db995e8260 27a9a42931dff7eb dc0fcf046c61640c "
    "4c98242dcadc8b29 ea9bb1082cf95663 3a8b61d0f636b007 a6c814bc555ae62c"
)


def _entropy_bits(value: str) -> float:
    total = len(value)
    if not total:
        return 0.0
    return -sum(n / total * math.log2(n / total) for n in Counter(value).values())


def is_published_sample(value: str) -> bool:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:16] in _PUBLISHED_SAMPLES


def is_filler(value: str) -> bool:
    return _FILLER_RUN.search(value) is not None or _entropy_bits(value) < _PLACEHOLDER_ENTROPY_BITS


def is_placeholder(value: str) -> bool:
    """Return whether the value is a placeholder or a part of the alphabet. A value that is longer
    than any documented sample is a key."""
    if len(value) <= _LONGEST_SAMPLE_CHARS and any(run in value for run in _SEQUENCES):
        return True
    return is_filler(value)


def _is_path(value: str) -> bool:
    if "/" not in value and "\\" not in value:
        return False
    if _PATH.search(value) is None:
        return False
    return "://" in value or len(value) < 20 or len(value) / len(_CLASS_RUN.findall(value)) >= 2.2


def is_uuid(value: str) -> bool:
    return _UUID.match(value) is not None


def is_wordy(value: str) -> bool:
    """Return whether the value reads as words or an identifier rather than random characters."""
    if _NUMBERED_WORDS.match(value):
        return True
    if _IDENTIFIER.match(value) is None:
        return False
    if not value.isascii() or len(value) < 10:
        return True
    if len(value) / len(_CLASS_RUN.findall(value)) < _WORDY_RUN_CHARS:
        return False
    pairs, common = _count_pairs(value)
    return pairs < _LEAST_PAIRS or common >= _WORDY_PAIR_SHARE * pairs


def is_name(value: str) -> bool:
    """Return whether the value is words and numbers joined like names of files, columns, hosts and
    sessions. A password may look the same, so callers skip this test after an unambiguous label."""
    bare = _UUIDS.sub("", value) if value.count("-") > 3 else value
    parts = [part for part in _JOINTS.split(bare) if part]
    if not all(map(_NAME_PART.match, parts)) or not (len(parts) > 1 or value[-1:].isdigit()):
        return False
    pairs, common = _count_pairs(value)
    return common >= _WORDY_PAIR_SHARE * pairs if pairs >= _LEAST_PAIRS else pairs > 1


def is_random(value: str) -> bool:
    """Return whether the characters look random: letters, digits and capitals alternate often, and
    the letter pairs are rare in words."""
    pairs, common = _count_pairs(value)
    if value.isalpha() and (value.islower() or value.isupper()):
        return pairs >= _LEAST_LETTERS_ALONE and common < _RANDOM_PAIR_SHARE * pairs
    often = len(value) / len(_CLASS_RUN.findall(value)) < _WORDY_RUN_CHARS
    if common >= (_WORDY_SHARE if often else _WORDY_SHARE / 2) * len(value):
        return False
    if 4 * sum(map(str.isalpha, value)) < len(value):
        return False
    parts = _SEPARATORS.split(value)  # not random: `us-east-1`, `k8s-prod-01`
    return len(parts) == 1 or not all(
        len(part) < 5 or _NUMBERED_WORD.fullmatch(part) for part in parts
    )


def _count_pairs(value: str) -> tuple[int, int]:
    pairs = common = 0
    for word in _LETTERS.findall(value):
        lowercase_word = word.lower()
        pairs += len(word) - 1
        common += sum(map(_COMMON_PAIRS.__contains__, map(add, lowercase_word, lowercase_word[1:])))
    return pairs, common


_JOINED_WORDS = re.compile(
    r"^[A-Za-z]{3,}(?:[-_][A-Za-z]{3,}){1,5}\d{0,4}$|^(?:[A-Z][a-z]{2,}){2,5}\d{0,4}$"
)
_WORD_OF_JOINED = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_TELLING_WORDS = words(
    "password passwd pass passphrase pwd secret token key user username admin root test testing "
    "demo example sample default value name field input form type string text hash hashed encoded "
    "encrypted plain base case sensitive auto generated required optional reset change changed new "
    "old current confirm confirmation wrong invalid valid empty none not missing unset set file "
    "path prompt stdin env var my your the account login auth manager policy placeholder server "
    "client database data host local dev prod staging read write only protected hidden masked is "
    "has was are will must should can cannot and for with without from credentials incorrect "
    "correct based less provided forgot forgotten show hide toggle visible error failed message"
)


def is_chosen_words(value: str) -> bool:
    """Return whether the value is joined words, as in a chosen password, and not a label."""
    if not 8 <= len(value) <= 60 or _JOINED_WORDS.match(value) is None:
        return False
    return not has_telling_word(value)


def has_telling_word(value: str) -> bool:
    """Return whether a word in the value is typical of a label or a name, not of a password."""
    return any(word.lower() in _TELLING_WORDS for word in _WORD_OF_JOINED.findall(value))


def is_reference(value: str, *, quoted: bool) -> bool:
    """Return whether the value names a secret stored elsewhere, or is a sample, a path or code."""
    if MASK_OPENING in value or value.lower().rstrip("!?") in _PLAIN_WORDS:
        return True
    if _REFERENCE.match(value) or _TEMPLATE.search(value):
        return True
    if _PLACEHOLDER_WORD.search(value.lower()) or _FILLER_RUN.search(value):
        return True
    if _is_path(value) or _FILE_NAME.search(value) or _DATE_OR_VERSION.match(value):
        return True
    if _PACKAGE_VERSION.match(value) or value.endswith(("...", "…")):
        return True
    return not quoted and _CALL.match(value) is not None


def is_literal(value: str) -> bool:
    """Return whether an argument is a password itself, not an option or a reference to one."""
    if len(value) < 4 or value.startswith(("-", "$", "<", "{", "%", "/", "[")):
        return False
    return not is_reference(value, quoted=True) and len(set(value)) > 2


def is_token_value(value: str, *, quoted: bool, least_chars: int = 10) -> bool:
    """Return whether the value of a token, key or secret looks generated."""
    if len(value) < least_chars or not value.isascii():
        return False
    has_digit = _DIGIT.search(value) is not None
    has_letter = _LETTER.search(value) is not None
    if not has_letter or _SPACE.search(value):
        return False
    if not has_digit and value.islower() and not is_random(value):
        return False
    if is_reference(value, quoted=quoted) or is_wordy(value) or is_placeholder(value):
        return False
    long = len(value) >= _SHORT_VALUE_CHARS
    return _entropy_bits(value) >= (_ENTROPY_FLOOR_BITS if long else _SHORT_ENTROPY_FLOOR_BITS)


def is_password_value(value: str, *, quoted: bool, least_chars: int = 5) -> bool:
    """Return whether the value looks like a password that a person chose: it is not a word, a
    reference or a type."""
    if len(value) < least_chars or _SPACE.search(value) or len(set(value)) < 3:
        return False
    if not quoted and (value.startswith("&") or _BRACKET.search(value)):
        return False
    has_digit = _DIGIT.search(value) is not None
    has_letter = _LETTER.search(value) is not None
    has_symbol = _SYMBOL.search(value) is not None
    if has_digit:
        is_chosen = has_letter or has_symbol or (quoted and len(value) >= 6)
    else:
        is_chosen = has_letter and (has_symbol or not is_wordy(value))
    return is_chosen and not is_reference(value, quoted=quoted)


_NAMED_VALUE = re.compile(r"[A-Za-z_][A-Za-z_.-]+=")
_CODE_SIGNS = frozenset(",;[(|")


def is_strong(value: str) -> bool:
    """Return whether a word can only be a password: it mixes letters with digits or signs."""
    if len(value) < 6 or not value.isascii() or not _CODE_SIGNS.isdisjoint(value):
        return False
    if value[0] in "/.<{[(@#&|\\" or "://" in value or "()" in value:
        return False
    if is_reference(value, quoted=False) or is_placeholder(value):
        return False
    digits = sum(c.isdigit() for c in value)
    letters = sum(c.isalpha() for c in value)
    signs = sum(c in "!@#$%^&*+=?~" for c in value[:-1])
    if not letters or (not digits and not signs):
        return False
    if value.isidentifier() and ("_" in value or len(value) < 8) and digits < 2:
        return False  # not a password: `sha256`, `oauth2_token`
    if _NAMED_VALUE.match(value):
        return False
    return is_password_value(value, quoted=True, least_chars=6) and not (
        not digits and value.replace("-", "").replace("_", "").isalpha()
    )
