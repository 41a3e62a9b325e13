"""The onnx embedder: any sentence-transformer exported to ONNX, run by onnxruntime.

Owns one loaded graph and its tokenizer. Never downloads, never imports a framework, never runs
on the event loop. Always holds: a text has the same vector whatever it is embedded with.

That last one is not given. A graph quantised while it runs (int8) scales its numbers over the
whole batch: with MiniLM int8 a text in a batch of 32 came out at a cosine of .990 to itself
alone, .962 at worst, and no faster. So each graph is tried when it is loaded: where company
changes a vector, its texts are run one by one, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from recollect.embedders.aside import aside
from recollect.embedders.loading import Loading, imported
from recollect.embedders.model_folder import ModelFolder, Pooling, read_model_folder
from recollect.embedders.units import Rows, readable, unit_vectors
from recollect.errors import EmbedderError
from recollect.values.lookup import EmbedderKind

EXTRA: Final = "onnx"
FEATURE: Final = "the onnx embedder"
PACKAGES: Final = ("onnxruntime", "tokenizers")
_BATCH_TEXTS: Final = 32
_CHARS_A_TOKEN: Final = 32
"""More than words have on average, so that only the tokenizer's own limit ever shortens prose."""
_SAME_WITHIN: Final = 1e-5
# Two texts as unlike as texts are: a graph that lets them disturb each other shows it here.
_TRIAL: Final = (
    "yes",
    "On 14 March 2025 the deploy of api-gateway 2.7.1 failed: `ECONNREFUSED 10.0.0.7:5432`!",
)
_QUIET: Final = 3
"""onnxruntime's severity from which it writes to stderr: errors only."""


class OnnxEmbedder:
    """A sentence-transformer in a folder."""

    kind: Final[EmbedderKind] = "onnx"

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        """Name the model in `folder`; EmbedderError where there is none. Loads nothing.

        One thread is right for a question, which must not take the cores from what else runs.
        """
        self._folder = read_model_folder(folder)
        self._threads = threads
        self._loading = Loading(self._load, name=self._folder.name)
        self._dimensions = 0

    @property
    def name(self) -> str:
        """`onnx:<folder>:<fingerprint>`."""
        return self._folder.name

    @property
    def dimensions(self) -> int:
        """Numbers of a vector; 0 until it is ready."""
        return self._dimensions

    @property
    def ready(self) -> bool:
        """Whether the graph is loaded."""
        return self._loading.ready

    async def load(self) -> None:
        """Load graph and tokenizer; MissingExtra or EmbedderError where that cannot be."""
        await self._loading.value()

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """One vector a text, in order; texts of like length are run together."""
        graph = await self._loading.value()
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors: list[bytes] = [b""] * len(texts)
        for first in range(0, len(order), _BATCH_TEXTS):
            places = order[first : first + _BATCH_TEXTS]
            batch = [texts[at] for at in places]
            # A thread a batch: one who no longer waits for it ends the rest.
            found = await aside(
                partial(self._vectors, graph, batch), name="onnx", failing=f"{self.name} failed"
            )
            for at, vector in zip(places, found, strict=True):
                vectors[at] = vector
        return tuple(vectors)

    def _vectors(self, graph: _Graph, texts: Sequence[str]) -> tuple[bytes, ...]:
        return unit_vectors(
            graph.rows(texts), count=len(texts), dimensions=graph.dimensions, embedder=self.name
        )

    def _load(self) -> _Graph:
        graph = _Graph(self._folder, threads=self._threads)
        # Vectors must never be kept under the name of files that were replaced meanwhile.
        if read_model_folder(self._folder.path).name != self.name:
            raise EmbedderError(
                f"the model in {self._folder.path} was replaced since it was chosen: start again"
            )
        self._dimensions = graph.dimensions
        return graph


class _Graph:
    """A graph that runs, with its tokenizer."""

    def __init__(self, folder: ModelFolder, *, threads: int) -> None:
        runtime, tokenizers = (
            imported(package, feature=FEATURE, extra=EXTRA) for package in PACKAGES
        )
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _QUIET
        # Threads that wait must not burn a core that the host could use.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = runtime.InferenceSession(
            str(folder.graph), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {given.name: _integers(given.type) for given in self._session.get_inputs()}
        self._output = _chosen_output(self._session.get_outputs())
        self._fixed = _fixed_tokens(self._session.get_inputs())
        self._pooling: Pooling = folder.pooling
        self._prefix = folder.prefix
        max_tokens = min(folder.max_tokens, self._fixed or folder.max_tokens)
        self._max_chars = max_tokens * _CHARS_A_TOKEN
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder.tokenizer))
        self._pad = int((self._tokenizer.padding or {}).get("pad_id", 0))
        # The file's own limits are those of the day it was exported.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._refuse_unknown_inputs(folder)
        alone = np.concatenate([self._run([self._tokens(text)]) for text in _TRIAL])
        self.dimensions = int(alone.shape[1])
        self._one_by_one = _takes_one(self._session.get_inputs()) or self._disturbed(alone)

    def rows(self, texts: Sequence[str]) -> Rows:
        """The vectors, one a row, as the graph gives them."""
        tokens = [self._tokens(text) for text in texts]
        if self._one_by_one:
            return np.concatenate([self._run([one]) for one in tokens])
        return self._run(tokens)

    def _tokens(self, text: str) -> list[int]:
        # One by one: a batch would start the tokenizer's own threads, which a host that forks
        # is then warned of.
        encoded = self._tokenizer.encode(self._prefix + readable(text, chars=self._max_chars))
        ids: list[int] = encoded.ids
        return ids or [self._pad]

    def _run(self, tokens: Sequence[list[int]]) -> Rows:
        longest = self._fixed or max(len(one) for one in tokens)
        ids = np.full((len(tokens), longest), self._pad, np.int64)
        mask = np.zeros_like(ids)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
            mask[row, : len(one)] = 1
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {name: given[name].astype(kind) for name, kind in self._inputs.items()}
        (found,) = self._session.run([self._output], feed)
        return self._pooled(np.asarray(found, np.float32), mask)

    def _pooled(self, found: Rows, mask: NDArray[np.int64]) -> Rows:
        if found.ndim == 2:
            return found
        if found.ndim != 3:
            raise EmbedderError(
                f"the graph's output {self._output} is neither vectors of texts nor of tokens"
            )
        if self._pooling == "cls":
            return found[:, 0]
        weights = mask[..., None].astype(np.float32)
        average: Rows = (found * weights).sum(axis=1) / weights.sum(axis=1)
        return average

    def _disturbed(self, alone: Rows) -> bool:
        together = self._run([self._tokens(text) for text in _TRIAL])
        lengths = np.linalg.norm(alone, axis=1, keepdims=True)
        return bool((np.abs(together - alone) > _SAME_WITHIN * lengths).any())

    def _refuse_unknown_inputs(self, folder: ModelFolder) -> None:
        unknown = self._inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"}
        if unknown or "input_ids" not in self._inputs:
            raise EmbedderError(
                f"{folder.graph} asks for {', '.join(sorted(self._inputs))}: only graphs on "
                "input_ids, attention_mask and token_type_ids can be run"
            )


def _integers(kind: str) -> type[np.signedinteger[Any]]:
    return np.int32 if kind == "tensor(int32)" else np.int64


def _chosen_output(outputs: Sequence[Any]) -> str:
    """Vectors of texts before vectors of tokens; a classifier's `pooler_output` last."""

    def rank(output: Any) -> int:
        if output.name == "sentence_embedding":
            return 0
        if output.name == "pooler_output":
            return 3
        return 1 if len(output.shape) == 2 else 2

    name: str = min(outputs, key=rank).name
    return name


def _fixed_tokens(inputs: Sequence[Any]) -> int | None:
    """The length that the graph was exported for, where it takes no other."""
    shapes = [given.shape for given in inputs if given.name == "input_ids"]
    length = shapes[0][1] if shapes and len(shapes[0]) == 2 else None
    return length if isinstance(length, int) else None


def _takes_one(inputs: Sequence[Any]) -> bool:
    """Whether the graph was exported for one text at a time."""
    return any(given.shape and given.shape[0] == 1 for given in inputs)
