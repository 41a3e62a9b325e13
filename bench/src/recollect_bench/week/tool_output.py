"""Output of a coding agent's tools, made up from the words of the story: files, searches, test runs
and logs. Equal calls give equal output."""

from __future__ import annotations

from random import Random
from typing import Final

_WORDS: Final = (
    *("station", "level", "frame", "reading", "threshold", "gateway", "alert", "partition"),
    *("calibration", "offset", "counter", "window", "batch", "contact", "upload", "receipt"),
    *("photo", "cursor", "bucket", "sensor", "schedule", "silence", "queue", "chart"),
)
_VERBS: Final = (
    *("read", "write", "merge", "check", "load", "send", "count", "find", "drop", "build"),
    *("apply", "parse", "store", "list", "open", "close", "group", "shift"),
)
_PLACES: Final = ("brunnau", "lerchtal", "kaltern", "osterbach", "neustift", "muehlau")
_FOLDERS: Final = (
    *("ingest", "storage", "alerts", "firmware", "calibration", "export", "monitor", "api"),
    *("photos", "dashboard/src/lib"),
)
FILES: Final = tuple(f"{folder}/{word}.py" for folder in _FOLDERS for word in _WORDS[:6])


def output_of(tool: str, argument: str, seed: int) -> str:
    """What a tool prints."""
    random = Random(f"{tool} {argument} {seed}")
    if tool == "read":
        return _numbered(_source(argument, random, random.randint(45, 110)))
    if tool == "edit":
        part = _source(argument, random, 14)
        return f"The file {argument} has been updated. The result of `cat -n`:\n{_numbered(part)}"
    if tool == "grep":
        return "\n".join(
            f"{random.choice(FILES)}:{random.randint(3, 220)}:{_statement(random, argument)}"
            for _ in range(random.randint(6, 18))
        )
    return _command(argument, random)


def _source(path: str, random: Random, count: int) -> list[str]:
    lines = [f'"""{path}: {random.choice(_VERBS)}s {random.choice(_WORDS)}s."""', ""]
    while len(lines) < count:
        name, thing = random.choice(_VERBS), random.choice(_WORDS)
        lines.append(f"def {name}_{thing}({thing}: {thing.title()}, limit: int) -> None:")
        lines += [f"    {_statement(random)}" for _ in range(random.randint(3, 9))]
        lines += ["", ""]
    return lines[:count]


def _statement(random: Random, word: str = "") -> str:
    thing, other = (word or random.choice(_WORDS)), random.choice(_WORDS)
    verb, place = random.choice(_VERBS), random.choice(_PLACES)
    return random.choice(
        (
            f"{other} = {verb}_{thing}({other}, limit={random.randint(2, 900)})",
            f"for {other} in self.{thing}s: {verb}_{other}({other})",
            f'log.info("{verb} {thing} of %s: %d", {other}.name, len({other}s))',
            f"if {thing}.count > {random.randint(2, 90)}: return {verb}_{other}({thing})",
            f'assert {verb}_{other}("{place}") is not None  # {thing}',
            f"return [{verb}_{thing}(one) for one in {other}s if one.{thing}]",
        )
    )


def _numbered(lines: list[str]) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))


def _command(command: str, random: Random) -> str:
    if "pytest" in command or command.startswith(("just", "npm")):
        count = random.randint(18, 240)
        lines = [
            f"{random.choice(FILES)} {'.' * random.randint(4, 40)} [{done}%]"
            for done in (12, 31, 48, 66, 83, 100)
        ]
        return "\n".join([*lines, f"{count} passed in {random.uniform(1, 40):.2f}s"])
    if command.startswith("git"):
        lines = [f" M {random.choice(FILES)}" for _ in range(random.randint(2, 7))]
        return "\n".join(["On branch main", *lines, f"[main {random.getrandbits(28):07x}] wip"])
    lines = [
        f"2026-{random.randint(1, 11):02}-{random.randint(1, 28):02}T{random.randint(0, 23):02}:"
        f"{random.randint(0, 59):02}Z {random.choice(_PLACES)} {random.choice(_WORDS)}="
        f"{random.randint(20, 640)} {random.choice(_VERBS)} ok"
        for _ in range(random.randint(8, 30))
    ]
    return "\n".join(lines)
