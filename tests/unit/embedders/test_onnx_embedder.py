"""The onnx embedder: on MiniLM where it is at hand, and on small graphs of every other make."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.embedders.onnx_files import INT32, WORDS, graph, write_model

from recollect.adapters.embedders.onnx import OnnxEmbedder
from recollect.errors import EmbedderError, MissingExtra

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
pytest.importorskip("tokenizers", reason="the extra `onnx` is not installed")

MODELS = Path(os.environ.get("RECOLLECT_MODELS", Path(__file__).parents[4] / "shared" / "models"))
TABLE = np.random.default_rng(7).normal(size=(len(WORDS), 8))
AT = {word: at for at, word in enumerate(WORDS)}
TEXTS = (
    "When did Anna move to Łódź?",
    "yes",
    "",
    "def f(x):\n    return x ** 2  # 0x7fff",
    "我们明天在北京见面",
    "the meeting about the kitchen was moved to Friday, because the plumber is ill. " * 3,
    "broken \ud83d escape",
)


@pytest.fixture(scope="module")
def minilm() -> OnnxEmbedder:
    folder = MODELS / "all-MiniLM-L6-v2-int8"
    if not folder.is_dir():
        pytest.skip(f"no {folder.name} at {MODELS}: set RECOLLECT_MODELS")
    return OnnxEmbedder(folder)


def embed(embedder: OnnxEmbedder, *texts: str) -> np.ndarray:
    found = asyncio.run(embedder.embed(texts))
    return np.array([np.frombuffer(one, "<f4") for one in found])


def unit(row: np.ndarray) -> np.ndarray:
    return np.asarray(row / np.linalg.norm(row))


# MiniLM


def test_meaning_is_found_where_no_word_is_shared(minilm: OnnxEmbedder) -> None:
    asked, answer, other = embed(
        minilm, "which pet does she own?", "her dog is called Rex", "the parser threw an exception"
    )
    assert asked @ answer > asked @ other + 0.2


def test_a_text_has_the_same_vector_alone_and_in_any_company(minilm: OnnxEmbedder) -> None:
    texts = [f"{text} {number}" for number in range(8) for text in TEXTS]
    alone = np.concatenate([embed(minilm, text) for text in texts])
    np.testing.assert_allclose(embed(minilm, *texts), alone, atol=1e-5)
    np.testing.assert_allclose(embed(minilm, *reversed(texts)), alone[::-1], atol=1e-5)
    assert np.allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)


def test_a_long_text_is_read_up_to_256_tokens(minilm: OnnxEmbedder) -> None:
    # [CLS] and [SEP] are two of them.
    long = " ".join(["kitchen"] * 254)
    one, same, shorter = embed(minilm, long, long + " ship" * 90_000, long[: len(long) // 2])
    np.testing.assert_allclose(one, same, atol=1e-6)
    assert np.abs(one - shorter).max() > 1e-4


async def test_one_who_gives_up_ends_the_rest_of_a_long_batch(minilm: OnnxEmbedder) -> None:
    await minilm.load()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(minilm.embed(["some words of a passage " * 40] * 5_000), 0.1)
    deadline = time.monotonic() + 20  # the whole of it would take minutes
    while any(one.name == "recollect-onnx" for one in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Graphs of every make


def lookup(
    folder: Path, *, beside: Mapping[str, object] | None = None, **made: object
) -> OnnxEmbedder:
    return OnnxEmbedder(write_model(folder, model=graph(TABLE, **made), beside=beside))  # type: ignore[arg-type]


def mean(*words: str) -> np.ndarray:
    return unit(np.mean([TABLE[AT[word]] for word in words], axis=0))


def test_token_vectors_are_averaged_without_the_padding(tmp_path: Path) -> None:
    rows = embed(lookup(tmp_path / "m"), "red", "red green blue round", "square blue")
    expected = [mean("red"), mean("red", "green", "blue", "round"), mean("square", "blue")]
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_the_first_token_is_taken_where_the_model_says_so(tmp_path: Path) -> None:
    beside = {
        "1_Pooling/config.json": {
            "pooling_mode_cls_token": True,
            "word_embedding_dimension": 8,
            "pooling_mode_mean_tokens": False,
            "include_prompt": True,
        }
    }
    rows = embed(lookup(tmp_path / "m", beside=beside), "red green", "blue")
    np.testing.assert_allclose(rows, [mean("red"), mean("blue")], atol=1e-5)


def test_a_pooling_nobody_knows_is_refused(tmp_path: Path) -> None:
    beside = {"1_Pooling/config.json": {"pooling_mode_lasttoken": True}}
    with pytest.raises(EmbedderError, match=r"lasttoken.*inside the graph"):
        lookup(tmp_path / "m", beside=beside)


@pytest.mark.parametrize(
    "made",
    [
        {"inputs": ("input_ids", "attention_mask", "token_type_ids")},
        {"inputs": ("input_ids",)},
        {"kind": INT32},
    ],
)
def test_a_graph_gets_the_inputs_it_asks_for(tmp_path: Path, made: dict[str, Any]) -> None:
    rows = embed(lookup(tmp_path / "m", **made), "red", "green blue round", "red red blue")
    expected = [mean("red"), mean("green", "blue", "round"), mean("red", "red", "blue")]
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_a_graph_that_asks_for_something_else_is_refused(tmp_path: Path) -> None:
    embedder = lookup(tmp_path / "m", inputs=("input_ids", "pixel_values"))
    with pytest.raises(EmbedderError, match="pixel_values"):
        asyncio.run(embedder.load())


@pytest.mark.parametrize(
    ("beside", "tokens"),
    [
        ({}, 256),
        ({"sentence_bert_config.json": {"max_seq_length": 3}}, 3),
        ({"tokenizer_config.json": {"model_max_length": 4}}, 4),
        ({"tokenizer_config.json": {"model_max_length": 1e30}}, 256),
        ({"sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False}}, 256),
    ],
)
def test_as_many_tokens_are_read_as_the_model_takes(
    tmp_path: Path, beside: dict[str, object], tokens: int
) -> None:
    text = "red " * tokens
    one, same = embed(lookup(tmp_path / "m", beside=beside), text, text + "blue " * 50)
    np.testing.assert_allclose(one, same, atol=1e-6)
    (shorter,) = embed(lookup(tmp_path / "m", beside=beside), text[4:] + "blue")
    assert np.abs(one - shorter).max() > 1e-4


# Files that change, are damaged, or are not there


def test_the_name_changes_with_whatever_changes_vectors(tmp_path: Path) -> None:
    plain = lookup(tmp_path / "m").name
    assert lookup(tmp_path / "elsewhere" / "m").name == plain
    other = TABLE.copy()
    other[3, 3] += 1
    names = {
        plain,
        OnnxEmbedder(write_model(tmp_path / "a" / "m", model=graph(other))).name,
        lookup(tmp_path / "b" / "m", beside={"tokenizer.json": '{"version": "2.0"}'}).name,
        lookup(tmp_path / "c" / "m",
               beside={"sentence_bert_config.json": {"max_seq_length": 9}}).name,
        lookup(tmp_path / "d" / "m",
               beside={"1_Pooling/config.json": {"pooling_mode_cls_token": True}}).name,
        lookup(tmp_path / "n").name,
    }  # fmt: skip
    assert len(names) == 6
    # What changes nothing changes no name: a limit above our own.
    same = lookup(tmp_path / "e" / "m", beside={"tokenizer_config.json": {"model_max_length": 512}})
    assert same.name == plain


def test_a_model_replaced_before_it_was_loaded_is_refused(tmp_path: Path) -> None:
    embedder = lookup(tmp_path / "m")
    write_model(tmp_path / "m", model=graph(TABLE + 1))
    with pytest.raises(EmbedderError, match="was replaced"):
        asyncio.run(embedder.load())
    assert not embedder.ready


@pytest.mark.parametrize("damaged", ["model.onnx", "tokenizer.json"])
def test_a_damaged_file_fails_the_load(tmp_path: Path, damaged: str) -> None:
    folder = write_model(tmp_path / "m", model=graph(TABLE))
    (folder / damaged).write_bytes(b"half a download")
    embedder = OnnxEmbedder(folder)
    with pytest.raises(EmbedderError, match="could not be loaded: install it again"):
        asyncio.run(embedder.embed(["red"]))
    assert not embedder.ready


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_a_missing_package_is_told_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    embedder = lookup(tmp_path / "m")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"recollect\[onnx\]"):
        asyncio.run(embedder.load())
