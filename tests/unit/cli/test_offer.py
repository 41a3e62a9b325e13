"""The offer of the embedding model: one question at a terminal, whose answer is kept; none without
a terminal; and whatever the answer, the program goes on. Programs run in a real terminal, and a
real web server plays the mirror. The model is a tiny one in the place of the real one."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.harness.terminal import Terminal
from tests.unit.embedders.onnx_files import graph, write_model
from tests.unit.embedders.provider_server import Answer, Asked, Server, serve

from recollect.adapters.embedders import download as downloading
from recollect.adapters.embedders.local import package_folder
from recollect.cli import main
from recollect.errors import EmbedderError

pytestmark = pytest.mark.skipif(
    any(package_folder(name) is None for name in ("onnxruntime", "tokenizers")),
    reason="the extra `onnx` is not installed",
)
NAME = "all-MiniLM-L6-v2-int8"
QUESTION = "Download it? [Y/n]"
RUN = """
import sys
from recollect.adapters.embedders.download import KNOWN_MODELS, HubModel
KNOWN_MODELS["{name}"] = HubModel(name="{name}", repository="o/n", checksums={checksums})
sys.argv[0] = "recollect"
{program}
"""
CLI = "from recollect.cli import main; main()"
LIBRARY = """
import threading
import recollect
from recollect.system.config import Settings
def opened(**arguments):
    recollect.open_memory(store="m.db", **arguments)
    print("opened", list(arguments), flush=True)
worker = threading.Thread(target=opened)
worker.start(); worker.join()
opened(settings=Settings())
opened(embedders=[])
opened(settings={"recall.embedder": "static"})
opened()
opened()
print("end", flush=True)
"""


class Place:
    """A home, a mirror with the tiny model, and programs in a terminal."""

    def __init__(self, folder: Path, mirror: Server) -> None:
        self.folder = folder
        self.mirror = mirror
        self.checksums = {
            file.name: [hashlib.sha256(file.read_bytes()).hexdigest()]
            for file in (folder / "mirror" / NAME).iterdir()
        }
        self.model = folder / "home" / "models" / NAME
        self.env = {
            **os.environ,
            "RECOLLECT_HOME": str(folder / "home"),
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
            "RECOLLECT_RECALL__MODEL_SOURCE": mirror.url,
        }
        self.env.pop("RECOLLECT_MODELS", None)

    def run(self, program: str, *arguments: str, answer: str | None) -> tuple[int, str]:
        """Run a program in a terminal; `answer` None expects no question."""
        script = RUN.format(name=NAME, checksums=self.checksums, program=program)
        command = [sys.executable, "-c", script, *arguments]
        with Terminal(command, env=self.env, cwd=self.folder, columns=200) as terminal:
            if answer is not None:
                terminal.wait_for(QUESTION)
                terminal.send(answer)
            code = terminal.wait_until_ended()
            terminal._reader.join(timeout=30)
            text = "\n".join(terminal.all_lines())
        assert text.count(QUESTION) == (answer is not None), text
        return code, text

    def install(self, *options: str, answer: str | None) -> tuple[int, str]:
        return self.run(CLI, "install", "claude-code", *options, answer=answer)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    write_model(tmp_path / "mirror" / NAME, model=graph(np.eye(7)))

    def answer(asked: Asked) -> Answer:
        file = tmp_path / "mirror" / asked.path.removeprefix("/")
        return Answer(file.read_bytes()) if file.is_file() else Answer(b"", 404)

    with serve(answer) as server:
        yield Place(tmp_path, server)


@pytest.mark.parametrize("answer", ["\r", "Yes\r"])
def test_a_yes_downloads_the_model_and_nothing_is_asked_again(place: Place, answer: str) -> None:
    code, text = place.install(answer=answer)
    assert code == 0
    assert f"Downloaded and verified {NAME}" in text
    assert (place.model / "model.onnx").is_file()
    assert (place.folder / "claude" / "settings.json").is_file()
    assert place.install(answer=None)[0] == 0
    assert "opened" in place.run(LIBRARY, answer=None)[1]


def test_a_no_is_kept_and_says_how_to_download_later(place: Place) -> None:
    code, text = place.install(answer="n\r")
    assert code == 0
    assert f"recollect models download {NAME}" in text
    assert place.mirror.asked == []
    for _ in range(2):
        assert place.install(answer=None)[0] == 0
    assert not place.model.exists()
    assert place.install("--download-model", answer=None)[0] == 0
    assert place.model.exists(), "an option is a new answer"


def test_something_else_is_no_answer(place: Place) -> None:
    assert place.install(answer="perhaps\r")[0] == 0
    assert not place.model.exists()
    assert place.install(answer="y\r")[0] == 0
    assert place.model.exists()


def test_the_first_open_memory_asks_and_no_other_thread_or_settings_object_does(
    place: Place,
) -> None:
    code, text = place.run(LIBRARY, answer="y\r")
    assert code == 0
    lines = [line for line in text.splitlines() if line.startswith("opened") or QUESTION in line]
    assert [QUESTION if QUESTION in line else line for line in lines] == [
        "opened []",
        "opened ['settings']",
        "opened ['embedders']",
        "opened ['settings']",
        QUESTION,
        "opened []",
        "opened []",
    ]
    assert place.model.exists()


def test_wrap_asks_before_the_agent_has_the_screen_and_takes_none_of_its_options(
    place: Place,
) -> None:
    agent = place.folder / "bin" / "claude"
    agent.parent.mkdir()
    agent.write_text('#!/bin/sh\necho "agent got $*"\n')
    agent.chmod(0o755)
    place.env["PATH"] = f"{agent.parent}:{place.env['PATH']}"
    code, text = place.run(CLI, "wrap", "claude", "--model", "x", answer="n\r")
    assert code == 0
    assert text.index(QUESTION) < text.index("agent got --model x")
    assert "agent got" in place.run(CLI, "wrap", "claude", answer=None)[1]


def test_chat_asks_before_it_begins(place: Place) -> None:
    place.env["ANTHROPIC_API_KEY"] = "a-key"
    script = RUN.format(name=NAME, checksums=place.checksums, program=CLI)
    command = [sys.executable, "-c", script, "chat", "--provider", "anthropic"]
    with Terminal(command, env=place.env, cwd=place.folder) as terminal:
        terminal.wait_for(QUESTION)
        assert "›" not in "\n".join(terminal.all_lines())
        terminal.send("n\r")
        terminal.wait_for("›")
        terminal.send("\x04")
        assert terminal.wait_until_ended() == 0


def test_without_a_network_the_program_goes_on_and_says_what_to_do(place: Place) -> None:
    place.env["RECOLLECT_RECALL__MODEL_SOURCE"] = "http://127.0.0.1:9"
    code, text = place.install(answer="y\r")
    assert code == 0
    plain = " ".join(text.split())
    assert "cannot be downloaded (ConnectError): check the network" in plain
    assert f"recollect models download {NAME}" in plain
    assert place.install(answer=None)[0] == 0, "the answer is kept"
    code, text = place.install("--download-model", answer=None)
    assert code == 2, "a script learns that its order was not carried out"
    assert (place.folder / "claude" / "settings.json").is_file()


def test_ctrl_c_stops_the_download_and_not_the_program(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = """
import time
from recollect.adapters.embedders import download
def slow(*_, **__):
    print("downloading", flush=True)
    time.sleep(60)
download.download = slow
"""
    script = RUN.format(name=NAME, checksums=place.checksums, program=slow + CLI)
    command = [sys.executable, "-c", script, "install", "claude-code"]
    with Terminal(command, env=place.env, cwd=place.folder, columns=200) as terminal:
        terminal.wait_for(QUESTION)
        terminal.send("y\r")
        terminal.wait_for("downloading")
        terminal.send("\x03")
        assert terminal.wait_until_ended() == 0
        terminal.wait_for("To download it later")


@pytest.fixture
def scripted(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """The command without a terminal."""
    tiny = downloading.HubModel(name=NAME, repository="o/n", checksums=place.checksums)
    monkeypatch.setitem(downloading.KNOWN_MODELS, NAME, tiny)
    for name in ("RECOLLECT_HOME", "CLAUDE_CONFIG_DIR", "RECOLLECT_RECALL__MODEL_SOURCE"):
        monkeypatch.setenv(name, place.env[name])
    monkeypatch.delenv("RECOLLECT_MODELS", raising=False)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(main, arguments)
        return done.exit_code, done.output

    return run


def test_scripts_are_never_asked_and_answer_with_an_option(
    place: Place, scripted: Callable[..., tuple[int, str]]
) -> None:
    code, text = scripted("install", "claude-code")
    assert code == 0
    assert QUESTION not in text
    assert not (place.folder / "home" / "model-offer").exists(), "nobody has answered yet"
    assert scripted("install", "claude-code", "--dry-run", "--download-model")[0] == 0
    assert place.mirror.asked == []
    code, text = scripted("install", "claude-code", "--download-model", "--json")
    assert code == 0
    assert place.model.exists()


def test_doctor_names_the_weakness_and_the_command_that_ends_it(
    place: Place, scripted: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def embedder() -> dict[str, str]:
        checks = json.loads(scripted("doctor", "--json")[1])["checks"]
        (found,) = (check for check in checks if check["name"] == "embedder")
        return dict(found)

    found = embedder()
    assert found["state"] == "note"
    assert "misses most answers in other words" in found["said"]
    command = found["todo"].removeprefix("recollect ").split()
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        assert embedder()["todo"].startswith("pip install 'recollect[onnx]' && recollect models")
        patch.setitem(sys.modules, "wordllama", None)
        assert "by words only" in embedder()["said"]
    assert scripted(*command)[0] == 0
    found = embedder()
    assert (found["state"], found["todo"]) == ("ok", "")


def test_a_missing_package_is_named_to_a_script(
    scripted: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, text = scripted("install", "claude-code", "--download-model")
    assert code == 2
    assert "pip install 'recollect[onnx]'" in text


def test_the_offered_model_is_pinned() -> None:
    """Its commit and the SHA-256 of each file are in the code, so that no hub decides."""
    model = downloading.KNOWN_MODELS[NAME]
    assert len(model.revision) == 40
    assert model.license == "Apache-2.0"
    assert set(model.checksums) == {"model.onnx", "tokenizer.json"} == set(model.files)
    assert all(len(digits) == 64 for builds in model.checksums.values() for digits in builds)
    with pytest.raises(EmbedderError, match="not a known model"):
        downloading.hub_model("all-MiniLM")
