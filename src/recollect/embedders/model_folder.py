"""A folder that holds a sentence-transformer exported to ONNX: what is in it, and how it is run.

Owns what is read from the files beside the graph: how many tokens, which pooling, which prefix.
Reads small files only; the graph is another module's. Always holds: a `ModelFolder` names files
that were there, and its name says all that changes its vectors.

    model.onnx (or onnx/model.onnx)       the graph
    tokenizer.json                        the tokenizer
    sentence_bert_config.json             max_seq_length                    optional
    tokenizer_config.json                 model_max_length                  optional
    1_Pooling/config.json                 mean or cls                       optional
    config_sentence_transformers.json     the default prompt, as a prefix   optional
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from recollect.embedders.fingerprint import fingerprint
from recollect.errors import EmbedderError

Pooling: TypeAlias = Literal["mean", "cls"]

MAX_TOKENS: Final = 256
"""What is read of a text unless the model takes less; passages have about 150."""
_RECIPE: Final = "1"
"""Raise it when `onnx.py` makes other vectors of the same files."""
_GRAPHS: Final = ("model.onnx", "onnx/model.onnx")
_TOKENIZER: Final = "tokenizer.json"
# Where weights over 2 GiB are kept, by the exporters' habits.
_OUTER_WEIGHTS: Final = ("model.onnx_data", "model.onnx.data")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """What is known of a model before it is loaded."""

    path: Path
    graph: Path
    tokenizer: Path
    name: str
    """`onnx:<folder>:<fingerprint>`."""
    max_tokens: int
    pooling: Pooling
    """How token vectors become one, where the graph leaves that to us."""
    prefix: str


def holds_model(path: Path) -> bool:
    """Whether the folder has a graph and a tokenizer."""
    return (path / _TOKENIZER).is_file() and _graph(path) is not None


def read_model_folder(path: Path) -> ModelFolder:
    """What the folder holds; EmbedderError where it is no model, or one we cannot run."""
    graph, tokenizer = _graph(path), path / _TOKENIZER
    if graph is None or not tokenizer.is_file():
        raise EmbedderError(
            f"{path} holds no ONNX model: it needs model.onnx and tokenizer.json. "
            "`recollect models download all-MiniLM-L6-v2` fetches one"
        )
    max_tokens, pooling, prefix = _max_tokens(path), _pooling(path), _prefix(path)
    outer = tuple(graph.parent / name for name in _OUTER_WEIGHTS)
    mark = fingerprint(
        (graph, tokenizer, *(weights for weights in outer if weights.is_file())),
        said=f"{_RECIPE}\0{max_tokens}\0{pooling}\0{prefix}",
    )
    return ModelFolder(
        path=path,
        graph=graph,
        tokenizer=tokenizer,
        name=f"onnx:{path.resolve().name}:{mark}",
        max_tokens=max_tokens,
        pooling=pooling,
        prefix=prefix,
    )


def _graph(path: Path) -> Path | None:
    return next((path / name for name in _GRAPHS if (path / name).is_file()), None)


def _max_tokens(path: Path) -> int:
    said = (
        _read(path / "sentence_bert_config.json").get("max_seq_length"),
        _read(path / "tokenizer_config.json").get("model_max_length"),
    )
    # Exporters write 10**30, as a float too, for a tokenizer that has no limit of its own.
    limits = [int(limit) for limit in said if isinstance(limit, int | float) and limit >= 1]
    return min(MAX_TOKENS, *limits) if limits else MAX_TOKENS


def _pooling(path: Path) -> Pooling:
    file = path / "1_Pooling" / "config.json"
    told = _read(file)
    modes = {name.removeprefix("pooling_mode_") for name, on in told.items() if on is True}
    modes -= {"include_prompt"}
    if isinstance(mode := told.get("pooling_mode"), str):
        modes.add(mode)
    if not modes or modes == {"mean_tokens"} or modes == {"mean"}:
        return "mean"
    if modes in ({"cls_token"}, {"cls"}):
        return "cls"
    raise EmbedderError(
        f"{file} asks for a pooling that is not known here ({', '.join(sorted(modes))}): export "
        "the model with its pooling inside the graph, and remove that file"
    )


def _prefix(path: Path) -> str:
    told = _read(path / "config_sentence_transformers.json")
    prompts, chosen = told.get("prompts"), told.get("default_prompt_name")
    if not isinstance(prompts, dict) or not isinstance(chosen, str):
        return ""
    prompt = prompts.get(chosen)
    return prompt if isinstance(prompt, str) else ""


def _read(path: Path) -> Mapping[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EmbedderError(f"{path} cannot be read: mend it or remove it") from error
    return told if isinstance(told, dict) else {}
