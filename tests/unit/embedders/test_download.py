"""A model is there whole and verified, or it is not there; a server plays the hub."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.unit.embedders.provider_server import (
    Answer,
    Asked,
    Server,
    serve,
)

from recollect.config.places import models_folders
from recollect.embedders import download as downloading
from recollect.embedders.download import (
    KNOWN_MODELS,
    Downloaded,
    GivenFile,
    HubModel,
    download,
    download_given,
    hub_model,
    model_files,
)
from recollect.errors import EmbedderError, MissingExtra
from recollect.surfaces.cli import models as models_command

GRAPH = os.urandom(400_000)
TOKENIZER = b'{"version": "1.0"}'
POOLING = b'{"pooling_mode_mean_tokens": true}'
COMMIT = "c" * 40
UNFINISHED = [10_000, *[0] * 5]
"""Some bytes come, then none for as often as the hub's client tries."""
MODEL = HubModel(name="small", repository="owner/small", files=model_files())


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Hub:
    """Small files by itself, large ones by a redirect, as the real one does."""

    large: dict[str, bytes] = field(default_factory=lambda: {"onnx/model.onnx": GRAPH})
    small: dict[str, bytes] = field(
        default_factory=lambda: {"tokenizer.json": TOKENIZER, "1_Pooling/config.json": POOLING}
    )
    told: dict[str, str] = field(default_factory=dict)
    """Checksums it tells instead of the true ones."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes the next answers with a large file break off."""
    ignores_range: bool = False
    store: str = ""
    """Where large files are kept: another host than the hub's own, as with the real one."""
    before: Callable[[Asked], Answer | None] = lambda _: None

    def __call__(self, asked: Asked) -> Answer:
        special = self.before(asked)
        if special is not None:
            return special
        if asked.path.startswith("/store/"):
            return self._ranged(self.large[asked.path.removeprefix("/store/")], asked)
        if asked.path.startswith("/cached/"):
            return self._small(asked.path.removeprefix("/cached/"))
        for revision in ("main", COMMIT):
            prefix = f"/owner/small/resolve/{revision}/"
            if asked.path.startswith(prefix):
                return self._resolved(asked.path.removeprefix(prefix))
        return Answer({}, 404)

    def _resolved(self, path: str) -> Answer:
        headers = {"X-Repo-Commit": COMMIT}
        if path in self.large:
            content = self.large[path]
            tag = self.told.get(path, sha256(content))
            linked = {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(content))}
            return Answer(b"", 302, {**headers, **linked, "Location": f"{self.store}/store/{path}"})
        if path in self.small:
            return Answer(b"", 307, {**headers, "Location": f"/cached/{path}"})
        return Answer({}, 404)

    def _small(self, path: str) -> Answer:
        content = self.small[path]
        return Answer(content, headers={"ETag": f'W/"{self.told.get(path, blob(content))}"'})

    def _ranged(self, content: bytes, asked: Asked) -> Answer:
        cut = self.cuts.pop(0) if self.cuts else None
        start = asked.headers.get("range", "").removeprefix("bytes=").removesuffix("-")
        if not start or self.ignores_range:
            return Answer(content, cut_after=cut)
        if int(start) >= len(content):
            return Answer(b"", 416)
        return Answer(content[int(start) :], 206, cut_after=cut)


@contextmanager
def hub_at(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serve(hub) as server:
        hub.store = server.url.replace("127.0.0.1", "localhost")
        monkeypatch.setenv("HF_ENDPOINT", server.url + "/")
        yield server


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's client waits a second before it tries again, and writes 10 MiB at once."""
    pause = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: pause(min(seconds, 0.01)))
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Hub, Server]]:
    played = Hub()
    monkeypatch.delenv("RECOLLECT_MODELS", raising=False)
    with hub_at(played, monkeypatch) as server:
        yield played, server


def fetched(models: Path, model: HubModel = MODEL, **changes: Any) -> Downloaded:
    return download(model, models, **changes)


def ranges(server: Server) -> list[str]:
    asked = [asked for asked in server.asked if asked.path.startswith("/store/")]
    return [one.headers.get("range", "") for one in asked]


def left(models: Path) -> list[str]:
    """What stands where models are looked for."""
    return sorted(path.name for path in models.iterdir() if not path.name.startswith("."))


def test_a_model_comes_whole_with_all_that_its_repository_has(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    seen: dict[str, tuple[int, int | None]] = {}

    def told(file: str, done: int, whole: int | None) -> None:
        assert done >= seen.get(file, (0, 0))[0]
        seen[file] = (done, whole)

    done = fetched(tmp_path / "models", progress=told)
    folder = tmp_path / "models" / "small"
    assert (folder / "model.onnx").read_bytes() == GRAPH
    assert (folder / "tokenizer.json").read_bytes() == TOKENIZER
    assert (folder / "1_Pooling" / "config.json").read_bytes() == POOLING
    assert not (folder / "sentence_bert_config.json").exists()
    assert seen["model.onnx"] == (len(GRAPH), len(GRAPH))
    assert done.files["model.onnx"] == f"sha256:{sha256(GRAPH)}"
    assert done.files["tokenizer.json"] == f"git-blob:{blob(TOKENIZER)}"
    assert done.size == len(GRAPH) + len(TOKENIZER) + len(POOLING)
    record = json.loads((folder / "model.json").read_text())
    assert (record["repository"], record["commit"]) == ("owner/small", COMMIT)
    # All files are of one commit, whatever becomes of the branch meanwhile.
    heads = [asked.path for asked in hub[1].asked if "/resolve/" in asked.path]
    assert sum("/resolve/main/" in path for path in heads) == 2, heads
    assert not list((tmp_path / "models" / ".parts").iterdir())


def test_no_token_is_sent(
    tmp_path: Path, hub: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of-somebody")
    fetched(tmp_path)
    sent = " ".join(f"{asked.path} {asked.headers}" for asked in hub[1].asked)
    assert "hf_of-somebody" not in sent
    assert "authorization" not in sent


def test_a_model_that_is_there_is_verified_and_not_downloaded_again(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    fetched(tmp_path)
    hub[1].asked.clear()
    assert fetched(tmp_path).was_there
    assert hub[1].asked == []
    (tmp_path / "small" / "model.onnx").write_bytes(b"tampered")
    with pytest.raises(EmbedderError, match=r"model\.onnx changed.*--again"):
        fetched(tmp_path)
    assert not fetched(tmp_path, again=True).was_there
    assert (tmp_path / "small" / "model.onnx").read_bytes() == GRAPH


@pytest.mark.parametrize("path", ["onnx/model.onnx", "tokenizer.json"])
def test_a_wrong_checksum_leaves_nothing(
    tmp_path: Path, hub: tuple[Hub, Server], path: str
) -> None:
    hub[0].told[path] = sha256(b"else") if path.startswith("onnx") else blob(b"else")
    with pytest.raises(EmbedderError, match="has not the checksum"):
        fetched(tmp_path)
    assert left(tmp_path) == []
    assert not list((tmp_path / ".parts").rglob(f"{hub[0].told[path]}*"))
    hub[0].told.clear()
    assert not fetched(tmp_path).was_there


def test_the_known_checksum_counts_more_than_the_hubs(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    pinned = replace(MODEL, files=model_files(graph_sha256=sha256(b"what it should be")))
    with pytest.raises(EmbedderError, match="another checksum"):
        fetched(tmp_path, pinned)
    assert ranges(hub[1]) == [], "nothing was downloaded"
    # A small file has no SHA-256 on the hub: it is verified by ours all the same.
    pinned = replace(MODEL, files=model_files(tokenizer_sha256=sha256(b"what it should be")))
    with pytest.raises(EmbedderError, match="has not the checksum sha256"):
        fetched(tmp_path, pinned)
    pinned = replace(MODEL, files=model_files(tokenizer_sha256=sha256(TOKENIZER)))
    assert fetched(tmp_path, pinned).files["tokenizer.json"] == f"sha256:{sha256(TOKENIZER)}"


def test_a_cut_connection_goes_on_where_it_stopped(tmp_path: Path, hub: tuple[Hub, Server]) -> None:
    hub[0].cuts = [100_000, 50_000]
    fetched(tmp_path)
    assert (tmp_path / "small" / "model.onnx").read_bytes() == GRAPH
    assert ranges(hub[1]) == ["", "bytes=100000-", "bytes=150000-"]


def test_what_could_not_be_finished_goes_on_the_next_time(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    hub[0].cuts = list(UNFINISHED)
    with pytest.raises(EmbedderError, match="goes on from there"):
        fetched(tmp_path)
    assert left(tmp_path) == []
    hub[1].asked.clear()
    fetched(tmp_path)
    assert ranges(hub[1]) == ["bytes=10000-"]
    assert (tmp_path / "small" / "model.onnx").read_bytes() == GRAPH


def test_a_part_of_another_version_is_not_gone_on_with(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    hub[0].cuts = list(UNFINISHED)
    with pytest.raises(EmbedderError):
        fetched(tmp_path)
    newer = os.urandom(300_000)
    hub[0].large["onnx/model.onnx"] = newer
    fetched(tmp_path)
    assert (tmp_path / "small" / "model.onnx").read_bytes() == newer


def test_a_server_that_cannot_resume_starts_over(tmp_path: Path, hub: tuple[Hub, Server]) -> None:
    hub[0].cuts, hub[0].ignores_range = [100_000], True
    fetched(tmp_path)
    assert (tmp_path / "small" / "model.onnx").read_bytes() == GRAPH


def test_a_hub_in_trouble_is_tried_again_and_a_missing_file_is_not(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    answers = iter([Answer({}, 503), Answer({}, 429)])
    hub[0].before = lambda asked: next(answers, None)
    assert not fetched(tmp_path).was_there
    hub[1].asked.clear()
    with pytest.raises(EmbedderError, match="is not there"):
        fetched(tmp_path, hub_model("other", "owner/nothing"))
    assert len(hub[1].asked) == 1


def test_a_hub_that_tells_no_checksum_is_refused(tmp_path: Path, hub: tuple[Hub, Server]) -> None:
    hub[0].told["onnx/model.onnx"] = "12345-abc"
    with pytest.raises(EmbedderError, match="without a checksum"):
        fetched(tmp_path)
    assert ranges(hub[1]) == []


def test_a_hub_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_at(Hub(), monkeypatch):
        pass
    with pytest.raises(EmbedderError, match="HF_ENDPOINT"):
        fetched(tmp_path)
    assert list((tmp_path / ".parts").iterdir()) == [], "nothing came, so nothing waits"
    monkeypatch.setenv("HF_ENDPOINT", "file:///tmp")
    with pytest.raises(EmbedderError, match="no http"):
        fetched(tmp_path)


def given_files(graph: str, tokenizer: str) -> list[GivenFile]:
    return [
        GivenFile(url=graph, sha256=sha256(GRAPH)),
        GivenFile(url=tokenizer, sha256=sha256(TOKENIZER)),
    ]


def test_no_log_holds_a_token_in_the_query_or_a_password(
    tmp_path: Path, hub: tuple[Hub, Server], caplog: pytest.LogCaptureFixture
) -> None:
    """httpx2 logs every address at INFO, its transport headers with redirects at DEBUG."""
    caplog.set_level(logging.DEBUG)
    graph = hub[1].url.replace("//", "//me:hunter2@") + "/moved/model.onnx?token=hunter3"
    signed = f"{hub[0].store}/store/onnx/model.onnx?signature=hunter4"

    def moved(asked: Asked) -> Answer | None:
        if asked.path.startswith("/moved/"):
            return Answer(b"", 302, {"Location": signed})
        return hub[0]._ranged(GRAPH, asked) if asked.path.startswith("/store/") else None

    hub[0].before = moved
    hub[0].cuts = [10_000]
    download_given("mine", given_files(graph, hub[1].url + "/cached/tokenizer.json"), tmp_path)
    assert any("hunter3" in asked.path for asked in hub[1].asked)
    assert any("hunter4" in asked.path for asked in hub[1].asked)
    assert "/moved/model.onnx" in caplog.text, "httpx2 logs as it always did"
    assert "hunter" not in caplog.text
    assert not any("hunter" in str(record.__dict__) for record in caplog.records)


def test_what_others_of_the_process_do_with_the_hub_stays_theirs(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    from huggingface_hub import get_session
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars

    def state() -> tuple[object, ...]:
        client = get_session()
        hooks = [list(hooks) for hooks in client.event_hooks.values()]
        filters = [
            list(logging.getLogger(name).filters)
            for name in ("httpx2", "huggingface_hub.file_download")
        ]
        level = hub_logging.get_verbosity()
        return client, hooks, filters, level, are_progress_bars_disabled()

    enable_progress_bars()
    hub_logging.set_verbosity_warning()
    during: list[tuple[object, ...]] = []
    before = state()
    fetched(tmp_path, progress=lambda *_: during.append(state()[3:]))
    assert state() == before
    assert set(during) == {before[3:]}, "nor while it runs"


@contextmanager
def with_tls(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose certificate the hub's client trusts."""
    from huggingface_hub import close_session

    key, certificate = folder / "key.pem", folder / "certificate.pem"
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    close_session()
    try:
        with serve(hub, tls=context) as server:
            yield server
    finally:
        close_session()


def test_no_file_is_fetched_by_a_redirect_from_https_to_http(
    tmp_path: Path, hub: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with with_tls(hub[0], tmp_path, monkeypatch) as server:
        given = given_files(server.url + "/moved/model.onnx", server.url + "/cached/tokenizer.json")
        for target, refused in (("https", False), ("http", True)):
            host = server.url if target == "https" else hub[1].url
            location = {"Location": f"{host}/store/onnx/model.onnx"}
            hub[0].before = lambda asked, to=location: (  # type: ignore[misc]
                Answer(b"", 302, to) if asked.path.startswith("/moved/") else None
            )
            if refused:
                with pytest.raises(EmbedderError, match="from https to http"):
                    download_given(target, given, tmp_path / "models")
            else:
                download_given(target, given, tmp_path / "models")
    assert left(tmp_path / "models") == ["https"]
    assert hub[1].asked == [], "nothing was asked without TLS"


def test_a_file_whose_server_is_in_trouble_is_tried_again(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    answers = iter([Answer({}, 503), Answer({}, 500), Answer({}, 502), Answer({}, 504)])
    hub[0].before = lambda asked: next(answers, None) if asked.path.startswith("/store/") else None
    hub[0].cuts = [100_000]
    fetched(tmp_path)
    assert (tmp_path / "small" / "model.onnx").read_bytes() == GRAPH
    hub[1].asked.clear()
    hub[0].before = lambda asked: Answer({}, 503) if asked.path.startswith("/store/") else None
    with pytest.raises(EmbedderError, match="answered 503: try again later"):
        fetched(tmp_path, again=True)
    assert len(ranges(hub[1])) == 5


def test_no_question_goes_on_without_tls() -> None:
    """What the answer to it says is the checksum: nobody on the way may write it."""
    from huggingface_hub.utils import _http

    same = _http._is_same_or_hub_host
    assert same("https://hub.example/owner/small", "https://hub.example/other/small")
    assert not same("https://hub.example/owner/small", "http://hub.example/owner/small")


def test_offline_nothing_is_asked_and_the_way_out_is_told(
    tmp_path: Path, hub: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EmbedderError, match="HF_HUB_OFFLINE is set: unset it"):
        fetched(tmp_path)
    assert hub[1].asked == []


def test_without_the_hubs_client_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match="onnx"):
        fetched(tmp_path)


def test_no_more_is_written_than_was_told(tmp_path: Path, hub: tuple[Hub, Server]) -> None:
    """A server that goes on and on would fill the disk before any checksum is looked at."""
    endless = Answer(GRAPH + b"x" * 3_000_000)
    hub[0].before = lambda asked: endless if asked.path.startswith("/store/") else None
    most = 0

    def told(file: str, done: int, whole: int | None) -> None:
        nonlocal most
        most = max(most, done)

    fetched(tmp_path, progress=told)
    assert most == len(GRAPH)
    assert (tmp_path / "small" / "model.onnx").read_bytes() == GRAPH


def test_a_model_that_cannot_be_replaced_stays(
    tmp_path: Path, hub: tuple[Hub, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(tmp_path)
    rename = Path.rename

    def fails(self: Path, target: Path) -> Path:
        if self.name == "whole":
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(EmbedderError, match="No space left"):
        fetched(tmp_path, again=True)
    assert left(tmp_path) == ["small"]
    assert fetched(tmp_path).was_there, "it is whole"


def test_redirects_without_end_end(tmp_path: Path, hub: tuple[Hub, Server]) -> None:
    hub[0].before = lambda asked: Answer(b"", 307, {"Location": asked.path})
    with pytest.raises(EmbedderError, match="without end"):
        fetched(tmp_path)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, hub: tuple[Hub, Server]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbedderError, match="cannot be written"):
        fetched(tmp_path / "file")


def test_two_at_once_do_not_write_into_each_others_parts(
    tmp_path: Path, hub: tuple[Hub, Server]
) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def hold(request: Asked) -> Answer | None:
        if request.path.startswith("/store/"):
            asked.set()
            go_on.wait(20)
        return None

    hub[0].before = hold
    first = threading.Thread(target=fetched, args=(tmp_path,))
    first.start()
    asked.wait(20)
    try:
        with pytest.raises(EmbedderError, match="another process"):
            fetched(tmp_path)
    finally:
        go_on.set()
        first.join()
    assert left(tmp_path) == ["small"]


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b", ""])
def test_a_name_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(EmbedderError, match="cannot be a model's name"):
        fetched(tmp_path / "models", hub_model(name, "owner/small"))
    assert list(tmp_path.iterdir()) == []


def test_known_models_are_pinned_or_say_that_they_are_not() -> None:
    """A checksum that is not one would refuse every download of that model."""
    for model in KNOWN_MODELS.values():
        assert model.megabytes
        assert {"model.onnx", "tokenizer.json"} <= {file.name for file in model.files}
        for file in model.files:
            assert file.sha256 is None or downloading._SHA256.fullmatch(file.sha256)


# The command


def called(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(models_command.models, arguments)
    if code == 0:
        assert done.exit_code == 0, (done.output, done.exception)
    return done


def told_by(*arguments: str) -> dict[str, Any]:
    told = json.loads(called(*arguments, "--json").stdout)
    assert isinstance(told, dict)
    return told


def test_the_command_downloads_and_lists(hub: tuple[Hub, Server]) -> None:
    before = told_by("list")
    assert before["installed"] == []
    assert "all-MiniLM-L6-v2" in [known["name"] for known in before["known"]]
    done = told_by("download", "small", "--from", "owner/small")
    folder = models_folders()[0] / "small"
    assert (done["folder"], done["was_there"]) == (str(folder), False)
    assert "was there already" in called("download", "small", "--from", "owner/small").stdout
    after = told_by("list")
    assert [model["name"] for model in after["installed"]] == ["small"]
    assert after["installed"][0]["downloaded"]
    shown = called("list").stdout
    assert str(folder) in shown
    assert "auto takes" in shown
    assert after["auto"]["said"] in shown


def test_files_by_address_are_verified_by_the_given_checksums(hub: tuple[Hub, Server]) -> None:
    graph, tokenizer = hub[1].url + "/store/onnx/model.onnx", hub[1].url + "/cached/tokenizer.json"
    given = ["--from", graph, "--sha256", sha256(GRAPH), "--from", tokenizer]
    done = told_by("download", "mine", *given, "--sha256", sha256(TOKENIZER).upper())
    assert (Path(done["folder"]) / "model.onnx").read_bytes() == GRAPH
    wrong = called("download", "other", *given, "--sha256", sha256(b"else"), code=1)
    assert "has not the checksum" in str(wrong.exception)
    assert not (models_folders()[0] / "other").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nothing"], "choose one of all-MiniLM-L6-v2"),
        (["mine", "--from", "https://127.0.0.1/model.onnx"], "its own --sha256"),
        (["mine", "--from", "https://127.0.0.1/model.onnx", "--sha256", "abc"], "64 hexadecimal"),
        (["mine", "--from", "https://127.0.0.1/a.onnx", "--sha256", "a" * 64], "tokenizer.json"),
        (["mine", "--from", "noslash"], "OWNER/NAME"),
        (["mine", "--sha256", "a" * 64], "addresses of files"),
    ],
)
def test_what_cannot_be_downloaded_says_what_to_give(arguments: list[str], why: str) -> None:
    done = called("download", *arguments, code=1)
    assert isinstance(done.exception, EmbedderError)
    assert why in str(done.exception)


def test_models_are_looked_for_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_MODELS", str(tmp_path))
    (tmp_path / "by-hand").mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / "by-hand" / name).write_bytes(b"x")
    told = told_by("list")
    assert told["folders"][0] == str(tmp_path)
    assert len(told["folders"]) == 2
    assert [(model["name"], model["downloaded"]) for model in told["installed"]] == [
        ("by-hand", False)
    ]


def test_an_interrupted_command_leaves_no_model_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()

    def slowly(asked: Asked) -> Answer | None:
        if asked.path.startswith("/store/") and "range" in asked.headers:
            stop.wait(20)
        return None

    hub = Hub(cuts=[100_000], before=slowly)
    program = (
        "import huggingface_hub.constants as hub; hub.DOWNLOAD_CHUNK_SIZE = 10_000\n"
        "from recollect.surfaces.cli.models import models; models()"
    )
    command = [sys.executable, "-c", program, "download", "small", "--from", "owner/small"]
    with hub_at(hub, monkeypatch) as server:
        environment = {**os.environ, "RECOLLECT_MODELS": str(tmp_path)}
        running = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # a run in the background hands on that SIGINT is ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        until = time.monotonic() + 30
        while len(ranges(server)) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=30)
        stop.set()
        assert running.returncode == 1, err.decode()
        assert b"Traceback" not in err
        assert out == b""
        assert left(tmp_path) == []
        server.asked.clear()
        again = subprocess.run(command, env=environment, capture_output=True, timeout=60)
        assert again.returncode == 0, again.stderr.decode()
        assert again.stderr == b"", "quiet where nobody watches"
    assert ranges(server) == ["bytes=100000-"]
    assert (tmp_path / "small" / "model.onnx").read_bytes() == GRAPH
