"""Small ONNX models written by hand: a table of token vectors, as a graph that really runs.

A graph is a protobuf message, and a table look-up needs so few of its fields that no exporter is
needed to write one.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

INT32, INT64, FLOAT = 6, 7, 1
WORDS = ("[UNK]", "[PAD]", "red", "green", "blue", "round", "square")


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _shaped(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    dimensions = b"".join(
        _bytes(1, _number(1, one) if isinstance(one, int) else _bytes(2, one)) for one in shape
    )
    return _bytes(1, name) + _bytes(2, _bytes(1, _number(1, kind) + _bytes(2, dimensions)))


def graph(
    table: np.ndarray,
    *,
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    kind: int = INT64,
    shape: Sequence[int | str] = ("b", "s"),
    output: str = "last_hidden_state",
) -> bytes:
    """A model whose output is the vector of each token."""
    rows = table.astype("<f4")
    tensor = (
        b"".join(_number(1, size) for size in rows.shape)
        + _number(2, FLOAT)
        + _bytes(8, "table")
        + _bytes(9, rows.tobytes())
    )
    node = _bytes(1, "table") + _bytes(1, inputs[0]) + _bytes(2, output) + _bytes(4, "Gather")
    body = (
        _bytes(1, node)
        + _bytes(2, "lookup")
        + _bytes(5, tensor)
        + b"".join(_bytes(11, _shaped(name, kind, shape)) for name in inputs)
        + _bytes(12, _shaped(output, FLOAT, (*shape, rows.shape[1])))
    )
    return _number(1, 8) + _bytes(7, body) + _bytes(8, _bytes(1, "") + _number(2, 17))


def tokenizer(*, pad: bool = True) -> str:
    """A tokenizer that knows `WORDS`; like real files, with limits of its own exporting day."""
    padding = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 1,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    return json.dumps(
        {
            "version": "1.0",
            "truncation": {
                "max_length": 2,
                "strategy": "LongestFirst",
                "stride": 0,
                "direction": "Right",
            },
            "padding": padding if pad else None,
            "added_tokens": [],
            "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordLevel",
                "vocab": {word: at for at, word in enumerate(WORDS)},
                "unk_token": "[UNK]",
            },
        }
    )


def write_model(
    folder: Path,
    *,
    model: bytes,
    beside: Mapping[str, object] | None = None,
    graph_name: str = "model.onnx",
) -> Path:
    """A model folder with these files."""
    (folder / graph_name).parent.mkdir(parents=True, exist_ok=True)
    (folder / graph_name).write_bytes(model)
    (folder / "tokenizer.json").write_text(tokenizer())
    for name, told in (beside or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(told if isinstance(told, str) else json.dumps(told))
    return folder
