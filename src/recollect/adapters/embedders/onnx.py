"""The onnx embedder: any sentence-transformer exported to ONNX, run by onnxruntime.

A text has the same vector whatever other texts are in its batch. A graph that is quantized while it
runs (int8) scales its numbers over the whole batch. So each graph is tested when it is loaded: if
other texts change a vector, texts go through the graph one by one.

model.onnx (or onnx/model.onnx) the graph tokenizer.json the tokenizer sentence_bert_config.json
max_seq_length optional tokenizer_config.json model_max_length optional 1_Pooling/config.json mean
or cls optional config_sentence_transformers.json the default prompt, as a prefix optional"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recollect.adapters.embedders import local
from recollect.core.values.recall import EmbedderKind
from recollect.errors import EmbedderError

Pooling: TypeAlias = Literal["mean", "cls"]

MAX_TOKENS: Final = 256
"""Maximum number of tokens read of a text. The model may accept fewer. Passages have about 150."""
_RECIPE: Final = "1"
"""Increase this number if `onnx.py` makes different vectors from the same files."""
_GRAPHS: Final = ("model.onnx", "onnx/model.onnx")
_TOKENIZER: Final = "tokenizer.json"
# Suffixes of the separate files into which exporters put weights over 2 GiB.
_OUTER_WEIGHTS: Final = ("model.onnx_data", "model.onnx.data")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """Properties of a model that are known before it is loaded."""

    path: Path
    graph: Path
    tokenizer: Path
    name: str
    """`onnx:<folder>:<fingerprint>`."""
    max_tokens: int
    pooling: Pooling
    """How token vectors are combined into one, if the graph does not do it."""
    prefix: str


def are_packages_installed() -> bool:
    return all(local.package_folder(package) is not None for package in PACKAGES)


def holds_model(path: Path) -> bool:
    return (path / _TOKENIZER).is_file() and _graph(path) is not None


def find_models(places: Sequence[Path]) -> list[Path]:
    """Return the folders of the models in these places. A missing or unreadable place has none."""
    return [folder for place in places for folder in sorted(place.glob("*")) if holds_model(folder)]


def read_model_folder(path: Path) -> ModelFolder:
    """Read the properties of the model in a folder. Raise EmbedderError if the folder has no model,
    or a model that Recollect cannot run."""
    graph, tokenizer = _graph(path), path / _TOKENIZER
    if graph is None or not tokenizer.is_file():
        raise EmbedderError(
            f"{path} has no ONNX model: it needs model.onnx and tokenizer.json. `recollect models "
            "list` shows models to download"
        )
    max_tokens, pooling, prefix = _max_tokens(path), _pooling(path), _prefix(path)
    outer = tuple(graph.parent / name for name in _OUTER_WEIGHTS)
    mark = local.fingerprint(
        (graph, tokenizer, *(weights for weights in outer if weights.is_file())),
        text=f"{_RECIPE}\0{max_tokens}\0{pooling}\0{prefix}",
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
    stated_limits = (
        _read(path / "sentence_bert_config.json").get("max_seq_length"),
        _read(path / "tokenizer_config.json").get("model_max_length"),
    )
    # Exporters write 10**30 (also as a float) if a tokenizer has no limit.
    limits = [
        int(limit) for limit in stated_limits if isinstance(limit, int | float) and limit >= 1
    ]
    return min(MAX_TOKENS, *limits) if limits else MAX_TOKENS


def _pooling(path: Path) -> Pooling:
    file = path / "1_Pooling" / "config.json"
    record = _read(file)
    modes = {name.removeprefix("pooling_mode_") for name, on in record.items() if on is True}
    modes -= {"include_prompt"}
    if isinstance(mode := record.get("pooling_mode"), str):
        modes.add(mode)
    if not modes or modes == {"mean_tokens"} or modes == {"mean"}:
        return "mean"
    if modes in ({"cls_token"}, {"cls"}):
        return "cls"
    raise EmbedderError(
        f"{file} asks for a pooling that Recollect does not support ({', '.join(sorted(modes))}): "
        "export the model with its pooling inside the graph, and remove that file"
    )


def _prefix(path: Path) -> str:
    record = _read(path / "config_sentence_transformers.json")
    prompts, prompt_name = record.get("prompts"), record.get("default_prompt_name")
    if not isinstance(prompts, dict) or not isinstance(prompt_name, str):
        return ""
    prompt = prompts.get(prompt_name)
    return prompt if isinstance(prompt, str) else ""


def _read(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EmbedderError(f"{path} cannot be read: fix it or remove it") from error
    return value if isinstance(value, dict) else {}


OFFERED_MODEL: Final = "all-MiniLM-L6-v2-int8"
"""The model that Recollect offers: small, and it finds paraphrases (docs/guides/embeddings.md)."""
EXTRA: Final = "onnx"
FEATURE: Final = "the onnx embedder"
PACKAGES: Final = ("onnxruntime", "tokenizers")
_BATCH_TEXTS: Final = 32  # not measured; bounds memory
_CHARS_PER_TOKEN: Final = 32
"""Before tokenizing, a text is cut to this many characters per token that is read. Words are
shorter, so only the tokenizer's own limit cuts prose."""
_SAME_WITHIN: Final = 1e-5  # above rounding in float32
# Two very different texts, to detect graphs in which the texts of a batch affect each other.
_TRIAL: Final = (
    "yes",
    "On 14 March 2025 the deploy of api-gateway 2.7.1 failed: `ECONNREFUSED 10.0.0.7:5432`!",
)
_QUIET: Final = 3
"""Severity from which onnxruntime writes to stderr: errors only."""


class OnnxEmbedder(local.LoadedEmbedder["_Graph"]):
    """Embeds texts with the sentence-transformer in a folder."""

    kind: Final[EmbedderKind] = "onnx"

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        """Read the properties of the model in `folder`, without loading it. Raise EmbedderError if
        the folder has no model. With one thread, as for questions, the host keeps its cores."""
        self._folder = read_model_folder(folder)
        self._threads = threads
        self._dimensions = 0
        super().__init__(self._folder.name)

    @property
    def dimensions(self) -> int:
        """Return the length of each vector; 0 until the model is loaded."""
        return self._dimensions

    async def embed(self, texts: Sequence[str]) -> tuple[bytes, ...]:
        """Return one vector per text, in order. Texts of similar length share a batch."""
        graph = await self.model()
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        made = await local.embed_in_chunks(
            partial(self._vectors, graph),
            [texts[index] for index in order],
            size=_BATCH_TEXTS,
            name=self.name,
        )
        by_place = dict(zip(order, made, strict=True))
        return tuple(by_place[index] for index in range(len(texts)))

    def _vectors(self, graph: _Graph, texts: Sequence[str]) -> tuple[bytes, ...]:
        return local.unit_vectors(
            graph.rows(texts), count=len(texts), dimensions=graph.dimensions, embedder=self.name
        )

    def _load(self) -> _Graph:
        graph = _Graph(self._folder, threads=self._threads)
        # If the files were replaced, the vectors must not be stored under the old name.
        if read_model_folder(self._folder.path).name != self.name:
            raise EmbedderError(
                f"the model in {self._folder.path} was replaced while it was in use: restart the "
                "program"
            )
        self._dimensions = graph.dimensions
        return graph


class _Graph:
    def __init__(self, folder: ModelFolder, *, threads: int) -> None:
        runtime, tokenizers = (
            local.import_package(package, feature=FEATURE, extra=EXTRA) for package in PACKAGES
        )
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _QUIET
        # Waiting threads must not keep a core busy that the host could use.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = runtime.InferenceSession(
            str(folder.graph), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {
            graph_input.name: (np.int32 if graph_input.type == "tensor(int32)" else np.int64)
            for graph_input in self._session.get_inputs()
        }
        self._output = _choose_output(self._session.get_outputs())
        self._pooling: Pooling = folder.pooling
        self._prefix = folder.prefix
        self._max_chars = folder.max_tokens * _CHARS_PER_TOKEN
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder.tokenizer))
        self._pad = int((self._tokenizer.padding or {}).get("pad_id", 0))
        # The file contains the limits of its export; do not apply them.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(folder.max_tokens)
        self._refuse_unknown_inputs(folder)
        alone = np.concatenate([self._run([self._tokens(text)]) for text in _TRIAL])
        self.dimensions = int(alone.shape[1])
        self._one_by_one = self._batch_changes_vectors(alone)

    def rows(self, texts: Sequence[str]) -> local.Rows:
        tokens = [self._tokens(text) for text in texts]
        if self._one_by_one:
            return np.concatenate([self._run([token]) for token in tokens])
        return self._run(tokens)

    def _tokens(self, text: str) -> list[int]:
        # Tokenize texts one by one: a batch would start the tokenizer's own threads, which cause a
        # warning in hosts that fork.
        ids: list[int] = self._tokenizer.encode(
            self._prefix + local.readable(text, chars=self._max_chars)
        ).ids
        return ids or [self._pad]

    def _run(self, tokens: Sequence[list[int]]) -> local.Rows:
        longest = max(len(token) for token in tokens)
        ids = np.full((len(tokens), longest), self._pad, np.int64)
        mask = np.zeros_like(ids)
        for row, token_ids in enumerate(tokens):
            ids[row, : len(token_ids)] = token_ids
            mask[row, : len(token_ids)] = 1
        input_arrays = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
        }
        feed = {name: input_arrays[name].astype(kind) for name, kind in self._inputs.items()}
        (value,) = self._session.run([self._output], feed)
        return self._pool(np.asarray(value, np.float32), mask)

    def _pool(self, output: local.Rows, mask: NDArray[np.int64]) -> local.Rows:
        if output.ndim == 2:
            return output
        if output.ndim != 3:
            raise EmbedderError(
                f"the graph's output {self._output} must be vectors of texts or of tokens"
            )
        if self._pooling == "cls":
            return output[:, 0]
        weights = mask[..., None].astype(np.float32)
        average: local.Rows = (output * weights).sum(axis=1) / weights.sum(axis=1)
        return average

    def _batch_changes_vectors(self, alone: local.Rows) -> bool:
        batch_vectors = self._run([self._tokens(text) for text in _TRIAL])
        lengths = np.linalg.norm(alone, axis=1, keepdims=True)
        return bool((np.abs(batch_vectors - alone) > _SAME_WITHIN * lengths).any())

    def _refuse_unknown_inputs(self, folder: ModelFolder) -> None:
        unknown_names = self._inputs.keys() - {"input_ids", "attention_mask", "token_type_ids"}
        if unknown_names or "input_ids" not in self._inputs:
            raise EmbedderError(
                f"{folder.graph} has the inputs {', '.join(sorted(self._inputs))}: Recollect "
                "supports only input_ids, attention_mask and token_type_ids"
            )


def _choose_output(outputs: Sequence[Any]) -> str:
    def rank(output: Any) -> int:
        if output.name == "sentence_embedding":
            return 0
        if output.name == "pooler_output":
            return 3
        return 1 if len(output.shape) == 2 else 2

    name: str = min(outputs, key=rank).name
    return name
