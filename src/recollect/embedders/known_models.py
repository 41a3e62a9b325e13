"""Which sentence-transformers can be downloaded by name, and of which files a model is made.

A table, and nothing else. A checksum stands here only where it was confirmed from several
sources; for all other files the hub's own is taken when they are downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

GRAPH: Final = "model.onnx"
"""What a graph is called here, wherever its repository keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of a repository on the hub."""

    path: str
    """In the repository."""
    kept_as: str = ""
    """In the model's folder; the same path unless told otherwise."""
    optional: bool = False
    """A repository may lack it."""
    sha256: str | None = None
    """None: the one that the hub tells."""

    @property
    def name(self) -> str:
        """Where it goes in the model's folder."""
        return self.kept_as or self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A repository on the hub, and what is taken of it."""

    name: str
    """Of the model here: its folder's."""
    repository: str
    revision: str = "main"
    files: tuple[HubFile, ...] = field(repr=False)
    megabytes: int = 0
    """About how large the download is; 0 where nobody knows."""
    languages: str = ""
    licence: str = ""


_BESIDE: Final = (
    HubFile(path="sentence_bert_config.json", optional=True),
    HubFile(path="tokenizer_config.json", optional=True),
    HubFile(path="config_sentence_transformers.json", optional=True),
    HubFile(path="1_Pooling/config.json", optional=True),
)


def model_files(
    graph: str = "onnx/model.onnx",
    *,
    graph_sha256: str | None = None,
    tokenizer_sha256: str | None = None,
) -> tuple[HubFile, ...]:
    """What the onnx embedder reads of a sentence-transformer's repository."""
    return (
        HubFile(path=graph, kept_as=GRAPH, sha256=graph_sha256),
        HubFile(path="tokenizer.json", sha256=tokenizer_sha256),
        *_BESIDE,
    )


_MODELS: Final = (
    HubModel(
        name="all-MiniLM-L6-v2",
        repository="sentence-transformers/all-MiniLM-L6-v2",
        revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
        files=model_files(
            graph_sha256="6fd5d72fe4589f189f8ebc006442dbb529bb7ce38f8082112682524616046452",
            tokenizer_sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        megabytes=91,
        languages="English",
        licence="Apache-2.0",
    ),
    HubModel(
        name="bge-small-en-v1.5",
        repository="BAAI/bge-small-en-v1.5",
        files=model_files(),
        megabytes=134,
        languages="English",
        licence="MIT",
    ),
    HubModel(
        name="paraphrase-multilingual-MiniLM-L12-v2",
        repository="sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        files=model_files(),
        megabytes=480,
        languages="more than 50",
        licence="Apache-2.0",
    ),
)

KNOWN_MODELS: Final[Mapping[str, HubModel]] = {model.name: model for model in _MODELS}
"""By name."""
