"""A scripted model that takes every line it may quote for a fact, alone or behind a real server."""

import json
import re
from collections.abc import Mapping

from tests.harness.model_server import Asked, ModelServer, Step

from recollect.core.values.model import Prompt
from recollect.testing.scripted_model import Says, ScriptedModel

_LINE = re.compile(r"^\[(\d+)\] (?:user|assistant): (.+)$", re.MULTILINE)
_TYPES = {"decided": "decision", "prefer": "preference"}


def answer_reading(text: str) -> str:
    """The answer to a prompt: a claim for each of its numbered lines, in the line's own words."""
    lines = _LINE.findall(text.partition("</conversation>")[0])
    return json.dumps({"facts": [_claim(int(number), words) for number, words in lines]})


def _claim(number: int, words: str) -> dict[str, object]:
    said = re.sub(r"^Remember(?: that|:) ", "", words)
    type_ = next((name for word, name in _TYPES.items() if word in words), "config")
    names = {"subject": "", "attribute": ""}
    return {"line": number, "quote": said, "type": type_, "content": said, **names}


def fact_reader() -> ScriptedModel:
    """The model itself."""

    def answer(prompt: Prompt) -> str:
        extracts = prompt.purpose == "extraction"
        return answer_reading(prompt.text) if extracts else json.dumps({"decisions": []})

    return ScriptedModel(answer)


def reader_server() -> ModelServer:
    """The model behind a real server that speaks Chat Completions."""

    def answer(asked: Asked) -> Step:
        return Says(text=answer_reading(asked.body["messages"][-1]["content"]))

    return ModelServer(answer)


def reader_variables(server: ModelServer) -> Mapping[str, str]:
    """The environment of a command that has its sessions read by this server."""
    return {
        "RECOLLECT_MODELS__PROVIDER": "openai-chat",
        "RECOLLECT_MODELS__EXTRACTION": "reader",
        "RECOLLECT_MODELS__BASE_URL": server.url,
    }
