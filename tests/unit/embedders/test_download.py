"""A model is installed whole and verified, or not at all; a local server plays the hub or a mirror,
and a folder can be one, too."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.embedders.provider_server import Answer, Asked, Server, serve

from recollect.adapters.embedders import download as downloading
from recollect.adapters.embedders.download import HubModel, download, hub_model
from recollect.cli import doctor as models_command
from recollect.errors import EmbedderError
from recollect.system.places import models_folders

GRAPH = os.urandom(400_000)
TOKENIZER = b'{"version": "1.0"}'
POOLING = b'{"pooling_mode_mean_tokens": true}'
COMMIT = "c" * 40
MODEL = HubModel(name="small", repository="owner/small")
HALF = len(GRAPH) // 2


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


PINNED = HubModel(
    name="pinned",
    repository="owner/pinned",
    revision=COMMIT,
    checksums={
        "model.onnx": ("0" * 64, sha256(GRAPH)),  # two builds are accepted
        "tokenizer.json": (sha256(TOKENIZER),),
    },
)


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Hub:
    """Serves small files itself and large ones by a redirect, as the real hub does."""

    large: dict[str, bytes] = field(default_factory=lambda: {"onnx/model.onnx": GRAPH})
    small: dict[str, bytes] = field(
        default_factory=lambda: {
            "tokenizer.json": TOKENIZER,
            "1_Pooling/config.json": POOLING,
            "README.md": b"not a part of the model",
        }
    )
    sent: dict[str, bytes] = field(default_factory=dict)
    """What it sends in place of a large file's content."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes the next answers with a large file break off."""
    before: Callable[[Asked], Answer | None] = lambda _: None
    store: str = ""
    """Where large files are kept: another host than the hub's own, as with the real one."""

    def __call__(self, asked: Asked) -> Answer:
        special = self.before(asked)
        if special is not None:
            return special
        path = asked.path.partition("?")[0]
        if path.startswith("/store/"):
            return self._ranged(path.removeprefix("/store/"), asked)
        if path.startswith("/api/models/owner/small/tree/"):
            return Answer(self._files("path"))
        if path.startswith("/api/models/owner/small"):
            files = self._files("rfilename")
            return Answer({"id": "owner/small", "sha": COMMIT, "siblings": files})
        for revision in ("main", COMMIT):
            prefix = f"/owner/small/resolve/{revision}/"
            if path.startswith(prefix):
                return self._resolved(path.removeprefix(prefix))
        return Answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def _files(self, key: str) -> list[dict[str, Any]]:
        large = [
            {
                key: path,
                "type": "file",
                "size": len(content),
                "oid": "0" * 40,
                "blobId": "0" * 40,
                "lfs": {"sha256": sha256(content), "oid": sha256(content), "size": len(content)}
                | {"pointerSize": 130},
            }
            for path, content in self.large.items()
        ]
        small = [
            {key: path, "type": "file", "size": len(content)}
            | {"oid": blob(content), "blobId": blob(content)}
            for path, content in self.small.items()
        ]
        return large + small

    def _resolved(self, path: str) -> Answer:
        headers = {"X-Repo-Commit": COMMIT}
        if path in self.large:
            content = self.large[path]
            linked = {"X-Linked-Etag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
            return Answer(b"", 302, {**headers, **linked, "Location": f"{self.store}/store/{path}"})
        content = self.small[path]
        return Answer(content, headers={**headers, "ETag": f'"{blob(content)}"'})

    def _ranged(self, path: str, asked: Asked) -> Answer:
        content = self.sent.get(path, self.large[path])
        cut = self.cuts.pop(0) if self.cuts else None
        start = asked.headers.get("range", "").removeprefix("bytes=").removesuffix("-")
        if not start:
            return Answer(content, cut_after=cut)
        return Answer(content[int(start) :], 206, cut_after=cut)


@contextmanager
def hub_at(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serve(hub) as server:
        hub.store = server.url.replace("127.0.0.1", "localhost")
        monkeypatch.setenv("HF_ENDPOINT", server.url + "/")
        yield server


@dataclass
class Mirror:
    """A plain web server of files, as `python -m http.server` is; it may understand ranges."""

    files: Mapping[str, bytes]
    cuts: list[int] = field(default_factory=list)
    """After how many bytes the next answers with a graph break off."""
    knows_ranges: bool = True

    def __call__(self, asked: Asked) -> Answer:
        content = self.files.get(asked.path.removeprefix("/"))
        if content is None:
            return Answer(b"File not found", 404)
        cut = self.cuts.pop(0) if self.cuts and asked.path.endswith(".onnx") else None
        start = asked.headers.get("range", "").removeprefix("bytes=").removesuffix("-")
        if not (start and self.knows_ranges):
            return Answer(content, cut_after=cut)
        if int(start) >= len(content):
            return Answer(b"", 416)
        return Answer(content[int(start) :], 206, cut_after=cut)

    @classmethod
    def whole(cls, *, knows_ranges: bool = True, graph: bytes = GRAPH) -> "Mirror":
        files = {"pinned/model.onnx": graph, "pinned/tokenizer.json": TOKENIZER}
        return cls(files, knows_ranges=knows_ranges)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before a broken download goes on, and small pieces."""
    monkeypatch.setattr(downloading, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(downloading, "_CHUNK_BYTES", 10_000)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hub, Server]]:
    played = Hub()
    monkeypatch.delenv("RECOLLECT_MODELS", raising=False)
    with hub_at(played, monkeypatch) as server:
        yield played, server


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def installed(models: Path) -> list[str]:
    return sorted(path.name for path in models.iterdir() if not path.name.startswith("."))


def test_a_model_is_installed_with_the_files_that_it_needs(
    models: Path, hub: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    done = download(MODEL, models)
    folder = models / "small"
    assert (folder / "model.onnx").read_bytes() == GRAPH
    assert (folder / "1_Pooling" / "config.json").read_bytes() == POOLING
    assert not (folder / "README.md").exists()
    assert done.files == {
        "model.onnx": f"sha256:{sha256(GRAPH)}",
        "tokenizer.json": f"git-blob:{blob(TOKENIZER)}",
        "1_Pooling/config.json": f"git-blob:{blob(POOLING)}",
    }
    assert done.size == len(GRAPH) + len(TOKENIZER) + len(POOLING)
    assert json.loads((folder / "model.json").read_text())["commit"] == COMMIT
    assert not any("authorization" in asked.headers for asked in hub[1].asked), "no token is sent"
    assert list((models / ".parts").iterdir()) == []


def test_an_installed_model_is_verified(models: Path, hub: tuple[Hub, Server]) -> None:
    download(MODEL, models)
    hub[1].asked.clear()
    assert download(MODEL, models).was_there
    assert hub[1].asked == []
    (models / "small" / "model.onnx").write_bytes(b"tampered")
    with pytest.raises(EmbedderError, match=r"model\.onnx changed.*--again"):
        download(MODEL, models)
    assert not download(MODEL, models, replaces=True).was_there
    assert (models / "small" / "model.onnx").read_bytes() == GRAPH


def test_file_with_another_checksum_is_not_installed(models: Path, hub: tuple[Hub, Server]) -> None:
    hub[0].sent["onnx/model.onnx"] = b"x" * len(GRAPH)
    with pytest.raises(
        EmbedderError, match=r"model\.onnx of small .* has the SHA-256 \w{64}, not the"
    ):
        download(MODEL, models)
    assert installed(models) == []
    hub[0].sent.clear()
    assert not download(MODEL, models).was_there, "nothing of the wrong file is left"


def test_each_failure_of_the_hub_says_what_to_do(
    models: Path, hub: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EmbedderError, match="has no public revision 'main' there: check the name"):
        download(hub_model("other", "owner/nothing"), models)
    del hub[0].small["tokenizer.json"]
    with pytest.raises(EmbedderError, match=r"has no tokenizer\.json: choose another model"):
        download(MODEL, models)
    with monkeypatch.context() as offline:
        offline.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(EmbedderError, match="HF_HUB_OFFLINE is set: unset it"):
            download(MODEL, models)
    with hub_at(Hub(), monkeypatch):
        pass  # nobody listens there any more
    with pytest.raises(EmbedderError, match=r"check the network, or set recall\.model_source"):
        download(MODEL, models)
    with pytest.raises(EmbedderError, match=r"set recall\.model_source"):
        download(MODEL, models, source="http://")
    assert installed(models) == []


@pytest.mark.parametrize("prefix", ["pinned/", "", f"owner/pinned/resolve/{COMMIT}/"])
def test_a_mirror_is_a_web_server_or_a_folder_in_any_of_three_layouts(
    models: Path, tmp_path: Path, prefix: str
) -> None:
    graph = "onnx/model.onnx" if "resolve" in prefix else "model.onnx"
    files = {f"{prefix}{graph}": GRAPH, f"{prefix}tokenizer.json": TOKENIZER}
    with serve(Mirror(files)) as server:
        download(PINNED, models, source=f"{server.url}/")
    for path, content in files.items():
        (tmp_path / "mirror" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mirror" / path).write_bytes(content)
    done = download(PINNED, models, source=str(tmp_path / "mirror"), replaces=True)
    assert not done.was_there
    assert done.files["model.onnx"] == f"sha256:{sha256(GRAPH)}"
    assert (models / "pinned" / "model.onnx").read_bytes() == GRAPH


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_a_download_that_breaks_off_goes_on(models: Path, knows_ranges: bool) -> None:
    """By itself while each attempt brings bytes, and with the next command otherwise."""
    mirror = Mirror.whole(knows_ranges=knows_ranges)
    mirror.cuts = [HALF, 0]
    seen: list[int] = []
    with serve(mirror) as server:
        with pytest.raises(EmbedderError, match="continues where this download stopped"):
            download(PINNED, models, source=server.url)
        assert not (models / "pinned").exists(), "an incomplete model is never installed"
        mirror.cuts = [HALF // 2] if knows_ranges else []
        download(PINNED, models, source=server.url, progress=lambda _, done, __: seen.append(done))
    assert (models / "pinned" / "model.onnx").read_bytes() == GRAPH
    assert (min(seen[:-1]) > HALF) == knows_ranges, "only the rest is sent again"


def test_what_another_build_left_is_not_mixed_with_this_one(models: Path) -> None:
    other = Mirror.whole(graph=os.urandom(len(GRAPH)))
    other.cuts = [HALF, 0]
    with serve(other) as server, pytest.raises(EmbedderError, match="cannot be downloaded"):
        download(PINNED, models, source=server.url)
    with serve(Mirror.whole()) as server:
        download(PINNED, models, source=server.url)
    assert (models / "pinned" / "model.onnx").read_bytes() == GRAPH


def test_more_bytes_than_the_file_has_are_thrown_away(models: Path) -> None:
    part = models / ".parts" / "pinned" / "model.onnx"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * (len(GRAPH) + 1))
    with serve(Mirror.whole()) as server:
        download(PINNED, models, source=server.url)
    assert (models / "pinned" / "model.onnx").read_bytes() == GRAPH


def test_a_wrong_file_of_a_mirror_is_named_and_no_password_is_shown(models: Path) -> None:
    wrong = os.urandom(100)
    with serve(Mirror.whole(graph=wrong)) as server:
        source = server.url.replace("://", "://user:secret@")
        with pytest.raises(EmbedderError) as caught:
            download(PINNED, models, source=source)
    told = str(caught.value)
    assert f"has the SHA-256 {sha256(wrong)}" in told
    assert "127.0.0.1" in told
    assert "secret" not in told
    assert installed(models) == []


def test_a_model_that_cannot_be_replaced_stays(
    models: Path, hub: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    download(MODEL, models)
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "small.whole":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(EmbedderError, match="No space left"):
        download(MODEL, models, replaces=True)
    assert installed(models) == ["small"]
    assert download(MODEL, models).was_there, "it is whole"


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b", ""])
def test_a_name_stays_in_its_folder(models: Path, name: str) -> None:
    with pytest.raises(EmbedderError, match="is not a valid model name"):
        download(hub_model(name, "owner/small"), models)
    assert not models.exists()


def called(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(models_command.models, arguments)
    if code == 0:
        assert done.exit_code == 0, (done.output, done.exception)
    return done


def read_json(*arguments: str) -> Any:
    return json.loads(called(*arguments, "--json").stdout)


def test_the_command_downloads_and_lists(hub: tuple[Hub, Server]) -> None:
    before = read_json("list")
    assert before["installed"] == []
    assert "all-MiniLM-L6-v2-int8" in [known["name"] for known in before["known"]]
    done = read_json("download", "small", "--from", "owner/small")
    folder = models_folders()[0] / "small"
    assert (done["folder"], done["was_there"]) == (str(folder), False)
    assert "was there already" in called("download", "small", "--from", "owner/small").stdout
    after = read_json("list")
    assert [model["name"] for model in after["installed"]] == ["small"]
    shown = called("list").stdout
    assert str(folder) in shown
    assert after["auto"]["said"] in shown
