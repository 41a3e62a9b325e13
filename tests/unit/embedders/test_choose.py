"""Choosing an embedder: the best that is here, and what is said of the rest."""

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.unit.embedders.onnx_files import graph, write_model

from recollect.adapters.embedders.local import package_folder
from recollect.adapters.wiring.models import choose
from recollect.errors import MissingExtra

pytestmark = pytest.mark.skipif(
    any(package_folder(name) is None for name in ("onnxruntime", "tokenizers", "wordllama")),
    reason="the extras `onnx` and `static` are not installed",
)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("zebra", "antelope"):
        write_model(tmp_path / name, model=graph(np.eye(7)))
    (tmp_path / "aardvark, half downloaded").mkdir()
    return tmp_path


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def kinds(name: str, *models: Path, onnx_model: str | None = None) -> list[str]:
    chosen = choose(name, models=models, onnx_model=onnx_model)
    return [embedder.kind for embedder in chosen.used]


def test_auto_takes_both_where_both_are_here(models: Path) -> None:
    chosen = choose("auto", models=[models])
    assert [embedder.kind for embedder in chosen.used] == ["onnx", "static"]
    assert chosen.said.startswith("onnx:antelope:")
    assert "static:l2_supercat_256:" in chosen.said
    assert "onnx unavailable" not in chosen.said


def test_auto_goes_down_step_by_step_and_says_what_to_do(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = choose("auto", models=[tmp_path / "not made yet"])
    assert [embedder.kind for embedder in chosen.used] == ["static"]
    assert "recollect models download all-MiniLM-L6-v2" in chosen.said
    without(monkeypatch, "wordllama")
    chosen = choose("auto", models=[models])
    assert [embedder.kind for embedder in chosen.used] == ["onnx"]
    assert "pip install 'recollect[static]'" in chosen.said
    without(monkeypatch, "onnxruntime")
    chosen = choose("auto", models=[models])
    assert chosen.used == (), "hash finds no more than words do"
    assert chosen.said.startswith("recall searches by words only")
    assert "pip install 'recollect[onnx]'" in chosen.said
    assert "pip install 'recollect[static]'" in chosen.said


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", []),
        ("hash", ["hash"]),
        ("static", ["static"]),
        ("onnx", ["onnx"]),
        ("onnx+static", ["onnx", "static"]),
    ],
)
def test_a_name_gives_what_it_says(models: Path, name: str, expected: list[str]) -> None:
    assert kinds(name, models) == expected


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("static", "wordllama", "static"),
        ("onnx", "onnxruntime", "onnx"),
        ("onnx", "tokenizers", "onnx"),
        ("onnx+static", "onnxruntime", "onnx"),
        ("onnx+static", "wordllama", "static"),
    ],
)
def test_asking_outright_for_what_is_not_installed_raises(
    models: Path, monkeypatch: pytest.MonkeyPatch, name: str, missing: str, extra: str
) -> None:
    without(monkeypatch, missing)
    with pytest.raises(MissingExtra, match=rf"pip install 'recollect\[{extra}\]'"):
        choose(name, models=[models])


def test_a_model_is_named_by_its_folder_or_by_a_path(models: Path, tmp_path: Path) -> None:
    elsewhere = write_model(tmp_path / "else" / "where", model=graph(np.eye(7)))
    for onnx_model, expected in (("zebra", "onnx:zebra:"), (str(elsewhere), "onnx:where:")):
        chosen = choose("onnx", models=[models], onnx_model=onnx_model)
        assert chosen.used[0].name.startswith(expected)


def test_the_measured_model_comes_first_of_several(models: Path) -> None:
    for name in ("aardvark", "all-MiniLM-L6-v2-int8"):
        write_model(models / name, model=graph(np.eye(7)))
    chosen = choose("onnx", models=[models])
    assert chosen.used[0].name.startswith("onnx:all-MiniLM-L6-v2-int8:")
