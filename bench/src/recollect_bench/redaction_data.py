"""The texts of the redaction bench: labelled examples, templates, clean texts, real transcripts.

The templates were written by somebody who never saw the rules, and hold placeholders, so that no
secret is kept in the repository; values come from a fixed seed, so that every run sees the same.
The held-out half is for measuring only: whoever changes a rule never reads it, and looks at its
totals. Never changes an example.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import string
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from recollect_bench.data import DataNotFoundError, data_folder

# The texts of the redaction bench


_TRANSCRIPTS = (
    "pi_before-compaction.jsonl.gz",
    "pi_large-session.jsonl.gz",
    "codex_session.jsonl.gz",
    "codex_session_patches.jsonl.gz",
)
_GENERATED_OF_EACH = 400
_LEAST_TEXT_CHARS = 40
_FOUND_IN_TRANSCRIPTS = {
    "hash": re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)(?:[0-9a-f]{40}|[0-9a-f]{7,12})\b"),
    "uuid": re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    "path": re.compile(r"(?<![\w:/.])~?(?:/[\w.@+-]+){2,}"),
    "base64": re.compile(r"[A-Za-z0-9+/]{100,}={0,2}"),
}
_CONTEXTS = {
    "hash": ("{}", "commit {}", "git checkout {}", '{{"sha": "{}"}}', "index {}..{} 100644"),
    "uuid": ("{}", '{{"id": "{}"}}', "session {} resumed", "parentId={}"),
    "path": ("{}", "cat {}", '{{"path": "{}"}}', "{}:42: error", "file={}"),
    "base64": ("{}", "data:image/png;base64,{}", '{{"type": "image", "data": "{}"}}'),
    "call": ("{}", '{{"tool_use_id": "{}"}}', "call_id={}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of gitleaks' examples: true ones hold a secret of the rule, false ones none of it."""

    rule: str
    text: str
    is_true: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFile:
    """One of CredSweeper's sample files, with the places of that tool's findings."""

    text: str
    findings: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpora:
    """Everything the bench measures on."""

    examples: tuple[Example, ...]
    detector_cases: tuple[tuple[str, bool], ...]
    credential_files: tuple[CredentialFile, ...]
    clean: tuple[str, ...]
    transcript_texts: tuple[str, ...]


def load_corpora() -> Corpora:
    """Read and generate all texts of the bench."""
    folder = _secrets_folder()
    texts = tuple(_transcript_texts(folder))
    detector = _read_json(folder / "secrets" / "detect_secrets.json.gz")
    return Corpora(
        examples=tuple(
            Example(rule=row["rule"], text=row["text"], is_true=row["label"] == 1)
            for row in _read_json(folder / "secrets" / "gitleaks_rule_examples.json.gz")
        ),
        detector_cases=tuple(
            (case["text"], case["label"] == 1) for case in detector["plugin_cases"]
        ),
        credential_files=tuple(_credential_files(folder)),
        clean=tuple(dict.fromkeys(_clean_texts(texts))),
        transcript_texts=texts,
    )


def _secrets_folder() -> Path:
    folder = data_folder()
    if not (folder / "secrets").is_dir():
        raise DataNotFoundError(
            f"no secrets/ in {folder}: set RECOLLECT_DATA to the folder that holds "
            "secrets/ and transcripts/"
        )
    return folder


def _read_json(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def _transcript_texts(folder: Path) -> Iterator[str]:
    """Every text of some length in the transcripts, wherever in an entry it stands."""
    for name in _TRANSCRIPTS:
        with gzip.open(folder / "transcripts" / name, "rt", encoding="utf-8") as file:
            for line in file:
                if line.strip():
                    yield from _strings(json.loads(line))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _LEAST_TEXT_CHARS:
            yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from _strings(member)


def _credential_files(folder: Path) -> Iterator[CredentialFile]:
    stored = _read_json(folder / "secrets" / "credsweeper_samples.json.gz")
    findings: dict[str, list[tuple[int, int]]] = {path: [] for path in stored["files"]}
    for label in stored["labels_ml"]:
        text = stored["files"].get(label["path"])
        if text is None:  # three labels belong to files that are no text
            continue
        before = sum(len(line) + 1 for line in text.split("\n")[: label["line_num"] - 1])
        start = text.find(label["value"], before)
        if start >= 0:
            findings[label["path"]].append((start, start + len(label["value"])))
    for path, places in findings.items():
        yield CredentialFile(text=stored["files"][path], findings=tuple(places))


def _clean_texts(transcript_texts: tuple[str, ...]) -> Iterator[str]:
    """Hashes, UUIDs, paths, base64 and call ids, found and generated, bare and in context."""
    for kind, pattern in _FOUND_IN_TRANSCRIPTS.items():
        found = dict.fromkeys(
            m.group() for text in transcript_texts for m in pattern.finditer(text)
        )
        for item in found:
            yield from _in_contexts(kind, item)
    for kind, item in _generated(random.Random(2)):
        yield from _in_contexts(kind, item)


def _in_contexts(kind: str, item: str) -> Iterator[str]:
    for context in _CONTEXTS[kind]:
        yield context.format(item, item)


def _generated(rng: random.Random) -> Iterator[tuple[str, str]]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    words = "src lib main test build node_modules site-packages app index token auth keys v2"
    for _ in range(_GENERATED_OF_EACH):
        for size_bytes in (16, 20, 32, 64):
            yield "hash", rng.randbytes(size_bytes).hex()
        yield "uuid", str(uuid.UUID(bytes=rng.randbytes(16), version=4))
        yield "path", "/" + "/".join(rng.choices(words.split(" "), k=rng.randint(3, 14))) + ".py"
        head = rng.choice((b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b"\xff\xd8\xff\xe0\x00\x10JFIF"))
        image = head + rng.randbytes(rng.choice((60, 600, 6000)))
        yield "base64", base64.b64encode(image).decode()
        opening = rng.choice(("toolu_01", "call_", "msg_01", "chatcmpl-", "fc_", "resp_", "req_01"))
        yield "call", opening + "".join(rng.choices(letters, k=rng.choice((22, 24, 29, 48))))


Half: TypeAlias = Literal["tune", "held_out"]
HALVES: Final[tuple[Half, ...]] = ("tune", "held_out")
FILLED: Final = 5
"""So many values are tried for each template."""

_PLACEHOLDER: Final = re.compile(r"\{\{([a-z0-9]+)(?::([^}]+))?\}\}")
_ALNUM: Final = string.ascii_letters + string.digits
_SYMBOLS: Final = "!@#$%^&*-_+=?"
_WORD_LINES: Final = (
    "amber anchor basil beacon birch bridge candle canyon cedar cobalt copper coral delta ember "
    "falcon fern garnet ginger harbor hazel indigo island ivory jasper juniper kettle lantern "
    "lemon linen magnet maple marble meadow mirror nutmeg ocean olive orchid otter pebble pepper "
    "pilot plume quartz raven river saddle saffron silver spruce summit thistle timber topaz "
    "tulip umber velvet walnut willow winter zephyr"
)
_WORDS: Final = tuple(_WORD_LINES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way in which a secret, or something like one, is written."""

    id: str
    kind: str
    template: str = field(repr=False)
    lookalike: bool

    def fill(self, seed: int) -> tuple[str, tuple[str, ...]]:
        """The text with values in its places, and the values."""
        chance = random.Random(f"{self.id}:{seed}")
        values: list[str] = []

        def made(match: re.Match[str]) -> str:
            whole, secrets = _value(match[1], match[2] or "", chance)
            values.extend(secrets)
            return whole

        return _PLACEHOLDER.sub(made, self.template), tuple(values)


def load_kinds(half: Half) -> Iterator[Kind]:
    """The kinds of one half, in their order."""
    stored = resources.files("recollect_bench").joinpath(f"redaction_kinds_{half}.jsonl.gz")
    for line in gzip.decompress(stored.read_bytes()).decode().splitlines():
        if line.strip():
            held = json.loads(line)
            yield Kind(
                id=held["id"],
                kind=held["kind"],
                template=held["template"],
                lookalike=bool(held["lookalike"]),
            )


def _value(name: str, detail: str, chance: random.Random) -> tuple[str, tuple[str, ...]]:
    """A value of a placeholder, and what of it is secret."""
    if name == "pem":
        body = [_drawn(_ALNUM + "+/", 64, chance) for _ in range(12)]
        text = "\n".join([f"-----BEGIN {detail}-----", *body, f"-----END {detail}-----"])
        return text, tuple(body)
    size = int(detail) if detail.isdigit() else 0
    value = _MADE[name](size, chance)
    return value, (value,)


def _drawn(alphabet: str, size: int, chance: random.Random) -> str:
    return "".join(chance.choices(alphabet, k=size))


def _base64(size: int, chance: random.Random) -> str:
    """As an encoder writes it where the length is one of its; else without padding."""
    if size % 4:
        return _drawn(_ALNUM + "+/", size, chance)
    count = size // 4 * 3 - (2 if size == 44 else 0) + (1 if size == 44 else 0)
    return base64.b64encode(chance.randbytes(count)).decode()


def _password(size: int, chance: random.Random) -> str:
    """Letters, digits and at least one sign, as generators make them."""
    groups = (string.ascii_lowercase, string.ascii_uppercase, string.digits, _SYMBOLS)
    picked = [chance.choice(group) for group in groups]
    picked += chance.choices("".join(groups), k=max(0, size - len(picked)))
    first = chance.choice(_ALNUM)  # a sign in front would be an option of a shell's command
    chance.shuffle(picked)
    return (first + "".join(picked))[:size]


def _passphrase(size: int, chance: random.Random) -> str:
    """Words as people join them; two of three with a number, as most policies ask for."""
    words = chance.sample(_WORDS, size or 4)
    joint = chance.choice(("-", "_", ""))
    text = joint.join(words) if joint else "".join(word.title() for word in words)
    return text + (str(chance.randrange(1, 999)) if chance.random() < 2 / 3 else "")


def _jwt(_: int, chance: random.Random) -> str:
    def part(held: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(held).encode()).decode().rstrip("=")

    claims = {"sub": str(chance.randrange(10**9)), "iat": chance.randrange(10**9)}
    signed = _drawn(_ALNUM + "-_", 43, chance)
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{signed}"


_MADE: Final[dict[str, Callable[[int, random.Random], str]]] = {
    "alnum": lambda size, chance: _drawn(_ALNUM, size, chance),
    "hex": lambda size, chance: _drawn("0123456789abcdef", size, chance),
    "base64": _base64,
    "base64url": lambda size, chance: _drawn(_ALNUM + "-_", size, chance),
    "upper": lambda size, chance: _drawn(string.ascii_uppercase + "234567", size, chance),
    "lower": lambda size, chance: _drawn(string.ascii_lowercase, size, chance),
    "digits": lambda size, chance: _drawn(string.digits, size, chance),
    "password": _password,
    "passphrase": _passphrase,
    "jwt": _jwt,
    "uuid": lambda _, chance: str(uuid.UUID(bytes=chance.randbytes(16), version=4)),
    "bcrypt": lambda _, chance: "$2b$12$" + _drawn(_ALNUM + "./", 53, chance),
}
