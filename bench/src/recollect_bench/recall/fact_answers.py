"""Keeps what a model answered, so that a run that was interrupted goes on where it stopped.

Owns one file of answers, a line each, found by a hash of what was asked. Must never keep a prompt,
nor an answer that did not come. Always holds: the same prompt to the same model gets the same
answer, and none is paid for twice.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from recollect.ports import Model
from recollect.values.model import Answer, Prompt, Usage


class KeptAnswers:
    """A model whose answers are kept in a file."""

    def __init__(self, model: Model, file: Path) -> None:
        self._model = model
        self._file = file
        self._known: dict[str, dict[str, Any]] = {}
        self.from_file = 0
        if file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                kept = _read(line)
                if kept is not None:
                    self._known[kept["asked"]] = kept

    @property
    def name(self) -> str:
        """The model's own."""
        return self._model.name

    @property
    def window_tokens(self) -> int | None:
        """The model's own."""
        return self._model.window_tokens

    async def ask(self, prompt: Prompt) -> Answer:
        """The kept answer, or a new one that is kept from now on."""
        asked = self._asked(prompt)
        kept = self._known.get(asked)
        if kept is not None:
            self.from_file += 1
            usage = Usage(input_tokens=kept["input"], output_tokens=kept["output"])
            return Answer(text=kept["text"], stop=kept["stop"], usage=usage)
        answer = await self._model.ask(prompt)
        usage = answer.usage or Usage(input_tokens=0, output_tokens=0)
        kept = {
            "asked": asked,
            "text": answer.text,
            "stop": answer.stop,
            "input": usage.input_tokens,
            "output": usage.output_tokens,
        }
        self._known[asked] = kept
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(kept, ensure_ascii=False) + "\n")
        return answer

    async def close(self) -> None:
        """Give back the model's connections."""
        await self._model.close()

    def _asked(self, prompt: Prompt) -> str:
        schema = None if prompt.schema is None else dict(prompt.schema)
        parts = [self.name, prompt.system, prompt.text, prompt.max_output_tokens, schema]
        named = json.dumps(parts, ensure_ascii=False, sort_keys=True, default=dict)
        return blake2b(named.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _read(line: str) -> dict[str, Any] | None:
    """A kept answer; None for a line that was cut off when a run ended."""
    try:
        kept = json.loads(line)
    except ValueError:
        return None
    fields = {"asked", "text", "stop", "input", "output"}
    return kept if isinstance(kept, dict) and fields <= kept.keys() else None
