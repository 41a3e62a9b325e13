"""Offers the small embedding model to a user at a terminal: one question, whose answer is kept.

Nothing is asked without a terminal, or if the settings choose an embedder. Without the model,
recall uses `static` vectors if they are installed, or else words only."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from recollect.errors import EmbedderError, MissingExtra
from recollect.system.places import data_home, models_folders
from recollect.system.plain_text import size_text
from recollect.system.progress import ShownProgress

ANSWER_SECONDS: Final = 120.0
"""After this time without an answer, the program continues without the model, and asks again when
it starts the next time. Not measured."""
_LATER: Final = "To download it later: recollect models download {name}"


def offer_model(source: str | None, answer: bool | None = None) -> bool:  # noqa: FBT001
    """Offer the model, and download it after a yes, from `source` as `download` does. Return True
    if it was downloaded now.

    `answer` is an answer that a script gave as an option. Then nothing is asked, and a failed
    download raises EmbedderError; otherwise the failure is only shown."""
    is_asked = answer is None
    if is_asked and (_answer_file().exists() or not _is_at_terminal()):
        return False
    if answer is False:
        _keep_answer("no")
        return False
    # These imports are slow, and most programs end here before.
    from recollect.adapters.embedders import onnx
    from recollect.adapters.embedders.download import KNOWN_MODELS, download, source_to_show

    if not onnx.are_packages_installed():
        if answer:
            raise MissingExtra(feature=onnx.FEATURE, extra=onnx.EXTRA)
        return False
    if onnx.find_models(models_folders()):
        _keep_answer("yes")
        return False
    model, later = KNOWN_MODELS[onnx.OFFERED_MODEL], _LATER.format(name=onnx.OFFERED_MODEL)
    if is_asked:
        details = f"{model.name}, {model.megabytes} MB, {model.license}, from"
        _say("Recall finds more with a small embedding model, which runs on this machine:")
        answer = _ask(f"{details} {source_to_show(source)}\nDownload it? [Y/n] ")
    if not answer:
        if answer is False:
            _keep_answer("no")
            _say(f"Recall works without this model. {later}")
        return False
    _keep_answer("yes")
    try:
        with _interruptible(), ShownProgress(amount=size_text) as progress:
            result = download(model, models_folders()[0], source=source, progress=progress.show)
    except EmbedderError as error:
        if not is_asked:
            raise
        _say(f"recollect: {error}")
        return False
    except KeyboardInterrupt:  # the user stops the download, not the program
        _say(f"Stopped. {later}")
        return False
    _say(f"Downloaded and verified {result.name}: {size_text(result.size)} in {result.folder}")
    return True


def _answer_file() -> Path:
    return data_home() / "model-offer"


def _keep_answer(text: str) -> None:
    with suppress(OSError):  # if the folder cannot be written, the next program asks again
        _answer_file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _answer_file().write_text(f"{text}\n")


def _is_at_terminal() -> bool:
    # Other threads serve requests, while an agent may use the terminal.
    if threading.current_thread() is not threading.main_thread():
        return False
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return False
    with suppress(OSError, RuntimeError):  # a loop that runs would stand still
        asyncio.get_running_loop()
        return False
    # The shell would stop a program in its background that reads from the terminal.
    return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()


def _ask(question: str) -> bool | None:
    """Ask the question. Return None without an answer."""
    sys.stderr.write(question)
    sys.stderr.flush()
    with _interruptible():
        is_answered = bool(select.select([sys.stdin], [], [], ANSWER_SECONDS)[0])
        line = sys.stdin.readline() if is_answered else ""
    if not line:
        _say("")
        return None
    return {"": True, "y": True, "yes": True, "n": False, "no": False}.get(line.strip().lower())


@contextmanager
def _interruptible() -> Iterator[None]:
    # An event loop's own handler would ignore the first Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
