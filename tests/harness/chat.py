"""`recollect chat` in a real terminal, talking to a scripted model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.acceptance.recollect_cli import PROGRAM, environment
from tests.harness.model_server import Asked, ModelServer, Step
from tests.harness.terminal import Terminal

MODELS = {"/v1/models": {"data": [{"id": "scripted"}]}}


class Chat:
    """A chat in a terminal, and the server it asks."""

    def __init__(self, terminal: Terminal, server: ModelServer, workspace: Path) -> None:
        self.terminal = terminal
        self.server = server
        self.workspace = workspace

    def say(self, text: str) -> None:
        """Type and send, as soon as there is a prompt."""
        self.terminal.send(f"{text}\r")

    def users(self) -> list[str]:
        """What the user has said, as the model was told it last."""
        messages = [asked for asked in self.server.asked if asked.wire][-1].body["messages"]
        return [str(one["content"]) for one in messages if one["role"] == "user"]


@contextmanager
def chatting(
    home: Path,
    steps: Sequence[Step] | Callable[[Asked], Step] | ModelServer,
    *options: str,
    columns: int = 80,
    rows: int = 24,
    term: str = "xterm-256color",
) -> Iterator[Chat]:
    workspace = home / "work"
    workspace.mkdir(exist_ok=True)
    env = environment(home) | {"COLORTERM": "truecolor"}
    env.pop("COLUMNS")
    with ExitStack() as opened:
        if isinstance(steps, ModelServer):  # it runs already, and goes on
            server = steps
        else:
            server = opened.enter_context(ModelServer(steps, pages=MODELS))
        fixed = ("--provider", server.url, "--no-download-model")
        command = [*PROGRAM, "chat", str(workspace), *fixed, *options]
        terminal = opened.enter_context(
            Terminal(command, env=env, columns=columns, rows=rows, term=term)
        )
        terminal.wait_for("›")
        yield Chat(terminal, server, workspace)
