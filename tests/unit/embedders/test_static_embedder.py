"""The static embedder, held to the package whose vectors it reads."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from recollect.adapters.embedders import local
from recollect.adapters.embedders.local import MAX_CHARS, StaticEmbedder, package_folder
from recollect.errors import EmbedderError, MissingExtra

pytest.importorskip("tokenizers", reason="the extra `static` is not installed")
if package_folder("wordllama") is None:
    pytest.skip("the extra `static` is not installed", allow_module_level=True)

TEXTS = (
    "When did Anna move to Łódź?",
    "yes",
    "def f(x):\n    return x ** 2  # 0x7fff",
    "我们明天在北京见面",
    "a long story. " * 300,
    "   ",
)


def embed(*texts: str, embedder: StaticEmbedder | None = None) -> np.ndarray:
    found = asyncio.run((embedder or StaticEmbedder()).embed(texts))
    return np.array([np.frombuffer(one, "<f4") for one in found])


def test_its_vectors_are_the_packages_own(tmp_path: Path) -> None:
    program = (
        "import sys, json, numpy, pathlib, wordllama\n"
        "home = pathlib.Path(wordllama.__file__).parent\n"
        "model = wordllama.WordLlama.load(cache_dir=home, disable_download=True)\n"
        "numpy.save(sys.argv[1], model.embed(json.loads(sys.argv[2]), norm=True))\n"
    )
    file = tmp_path / "vectors.npy"
    # In a process of its own: importing the package sets up the root logger.
    subprocess.run(
        [sys.executable, "-c", program, str(file), json.dumps(TEXTS)], check=True, timeout=120
    )
    np.testing.assert_allclose(embed(*TEXTS), np.load(file), atol=1e-6)


def test_nothing_half_characters_and_huge_texts_have_length_one() -> None:
    huge = "word and another " * 100_000
    embedder = StaticEmbedder()
    rows = embed("", "broken \ud83d escape", huge, embedder=embedder)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    np.testing.assert_array_equal(rows[2], embed(huge[:MAX_CHARS], embedder=embedder)[0])
    assert asyncio.run(embedder.embed([])) == ()


def test_a_missing_package_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(MissingExtra, match=r"recollect\[static\]"):
        StaticEmbedder()


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *, weights: bytes) -> None:
    """A package of that name with other files."""
    package = folder / "wordllama"
    for name, content in (
        ("__init__.py", b""),
        ("weights/l2_supercat_256.safetensors", weights),
        ("tokenizers/l2_supercat_tokenizer_config.json", b"{}"),
    ):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes(content)
    monkeypatch.setattr(local, "package_folder", lambda _: package)


def test_a_package_without_its_weights_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, monkeypatch, weights=b"")
    (tmp_path / "wordllama/weights/l2_supercat_256.safetensors").unlink()
    with pytest.raises(EmbedderError, match="lacks its weights: run pip install"):
        StaticEmbedder()
