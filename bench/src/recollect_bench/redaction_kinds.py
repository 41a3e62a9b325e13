"""Kinds of secrets as people and programs write them, and what only looks like one.

Owns filling in the templates: they were written by somebody who never saw the rules, and hold
placeholders, so that no secret is kept in the repository; values come from a seed. The held-out
half is for measuring only: whoever changes a rule never reads it, and looks at its totals.
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
from typing import Final, Literal, TypeAlias

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
