"""Processes that write and are killed: one is started and forks the others, which is quick.

Run as a script it reads commands from standard input, one JSON array a line, and forks a child
for each; children and script speak on standard output, one word pair a line.
"""

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


class Writers:
    """The script from outside."""

    def __init__(self) -> None:
        self._script = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}"},
        )

    def start(self, *command: Any) -> int:
        """Fork a child for the command; its process id."""
        assert self._script.stdin is not None
        self._script.stdin.write(json.dumps(command) + "\n")
        self._script.stdin.flush()
        word, told = self.next()
        assert word == "started"
        return int(told)

    def next(self) -> tuple[str, str]:
        """What is said next."""
        assert self._script.stdout is not None
        word, _, told = self._script.stdout.readline().strip().partition(" ")
        return word, told

    def kill(self, child: int) -> list[tuple[str, str]]:
        """Kill a child; what it had said that nobody had heard yet."""
        os.kill(child, signal.SIGKILL)
        return self.until_ended()

    def until_ended(self) -> list[tuple[str, str]]:
        """What the child says up to its end."""
        heard: list[tuple[str, str]] = []
        while (said := self.next())[0] != "ended":
            assert said[0], "the script died"
            heard.append(said)
        return heard

    def close(self) -> None:
        assert self._script.stdin is not None
        assert self._script.stdout is not None
        self._script.stdin.close()
        self._script.stdout.close()
        self._script.wait()


def say(word: str, told: object) -> None:
    os.write(1, f"{word} {told}\n".encode())


def write_until_killed(path: str, seed: int) -> None:
    """Add messages of all sizes and tell of each once it is acknowledged."""
    rng = random.Random(seed)
    with open_transcript(Path(path), session_id="s", redaction=Redaction()) as transcript:
        say("open", transcript.session_id)
        while True:
            size = rng.choice((10, 1_000, 100_000))
            content = [{"type": "text", "text": "word " * (size // 5)}]
            entry = transcript.append_message({"role": "user", "content": content})
            say("wrote", entry.id)


def _counted(record: Any) -> Any:
    return replace(record, raw_fields={**record.raw_fields, "n": record.raw_fields.get("n", 0) + 1})


def count_up(path: str, keys: list[str], times: int) -> None:
    """Change the index from as many processes as there are keys, at the same time."""
    children = []
    for key in keys:
        child = os.fork()
        if child:
            children.append(child)
            continue
        for _ in range(times):
            SessionIndex(Path(path)).update(key, _counted)
        os._exit(0)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


def main() -> None:
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        said, heard = os.pipe()
        child = os.fork()
        if not child:
            os.read(said, 1)  # so that the script speaks first
            if name == "write":
                write_until_killed(*arguments)
            else:
                count_up(*arguments)
            os._exit(0)
        say("started", child)
        os.write(heard, b"!")
        os.close(said)
        os.close(heard)
        os.waitpid(child, 0)
        say("ended", child)


if __name__ == "__main__":
    from recollect.adapters.session.files import SessionIndex
    from recollect.adapters.session.transcript import open_transcript
    from recollect.system.config.settings import Redaction

    main()
