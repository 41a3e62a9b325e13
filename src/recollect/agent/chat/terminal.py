"""The chat in a terminal: a prompt, and a turn that streams above it.

prompt_toolkit (in the extra `chat`) reads lines, and rich draws. While the agent works, Ctrl-C
stops the turn, and typed keys wait for the next prompt. Keys typed before a question are dropped,
so that they do not answer the question. After a signal the terminal is restored."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from recollect.agent.chat.opening import ChatOrder, PersonQuestion, open_chat_agent
from recollect.errors import MissingExtra, RecollectError, TranscriptError
from recollect.system.durable import make_folder
from recollect.system.places import chat_history_file
from recollect.system.plain_text import harmless
from recollect.system.telemetry import logging_to

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import run_in_terminal
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.filters import is_searching
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.shortcuts import CompleteStyle
    from prompt_toolkit.styles import Style
except ImportError:
    raise MissingExtra(feature="the chat in a terminal", extra="chat") from None

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

    from recollect.agent.chat.screen import Screen
    from recollect.agent.loop import Agent

FRAME_SECONDS: Final = 0.1
"""Shortest interval between two drawings of the live region."""
PROMPT: Final = "› "
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


def talk(order: ChatOrder) -> int:
    try:
        return asyncio.run(TerminalChat(order).run())
    except KeyboardInterrupt:  # the user pressed Ctrl-C while the memory was being opened
        return 130


class MaskedHistory(FileHistory):
    """The lines typed in the chats of a space, in a file that only its owner can read. Secrets are
    masked, and words that a transcript may not contain (as in `/memory add`) are removed."""

    def __init__(self, space: str, *, pii: bool = False) -> None:
        super().__init__(chat_history_file(space))
        self._pii = pii

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        from recollect.adapters.session.files import open_for_one
        from recollect.agent.commands import read_command, recordable_argument
        from recollect.core.rules.redaction import redact

        command = read_command(string)
        if isinstance(command, str) or (
            command and recordable_argument(command) != command.argument
        ):
            return
        lines = redact(string, pii=self._pii).text.split("\n")
        entry = f"\n# {datetime.now(UTC).isoformat()}\n" + "".join(f"+{line}\n" for line in lines)
        path = Path(os.fsdecode(self.filename))
        with suppress(OSError, TranscriptError):
            make_folder(path.parent)
            descriptor = open_for_one(path, create=True)  # forgetting locks this file too
            try:
                os.write(descriptor, entry.encode("utf-8", "replace"))
            finally:
                os.close(descriptor)


def _completions() -> list[str]:
    from recollect.agent.commands import COMMANDS, TERMINAL_COMMANDS, MemoryAction

    names = sorted({*COMMANDS, *TERMINAL_COMMANDS})
    memory = [f"/memory {action}" for action in get_args(MemoryAction)]
    return [*(f"/{name}" for name in names), *memory]


class ShownLog(logging.Handler):
    """Shows log messages from any thread in the chat."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._loop = asyncio.get_running_loop()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(RuntimeError):  # the event loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._show, record.getMessage())


class TerminalChat:
    """A chat from its first prompt to its end."""

    def __init__(self, order: ChatOrder) -> None:
        self._order = order
        self._screen: Screen | None = None
        self._agent: Agent | None = None
        self._in_turn = False
        self._ends_next = False
        self._session: PromptSession[str] = self._prompt_session()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        sys.stdout.write("recollect · /help, Ctrl-D ends\n")
        sys.stdout.flush()
        code = 0
        talking = asyncio.current_task()

        def end(number: int) -> None:
            nonlocal code
            code = 128 + number
            if talking is not None:
                talking.cancel()

        for number in _ENDING:
            loop.add_signal_handler(number, end, number)
        try:
            with logging_to(ShownLog(self._note)):
                async with open_chat_agent(self._order, self._ask) as agent:
                    from recollect.agent.chat.screen import Screen

                    self._agent, self._screen = agent, Screen(agent.model_name)
                    loop.add_signal_handler(signal.SIGINT, self._stop)
                    await self._follow(agent)
                    with _keys_unseen(sys.stdin.fileno()):
                        await self._talk(agent, self._screen)
        except RecollectError as error:
            sys.stderr.write(f"recollect: {harmless(str(error))}\n")
            code = 2
        except (asyncio.CancelledError, OSError):  # a closed terminal accepts no more output
            if not code:
                raise
        return code

    async def _talk(self, agent: Agent, screen: Screen) -> None:
        while (text := await self._read_line()) is not None:
            words = text.split()
            if words == ["/exit"]:
                return
            if words[:1] == ["/show"]:
                number = words[1] if len(words) > 1 else ""
                screen.show(int(number) if number.isdecimal() else None)
            else:
                await self._turn(agent, screen, text)

    def _note(self, text: str) -> None:
        if self._in_turn and self._screen is not None:
            self._screen.note(text)
        elif self._session.app.is_running:
            run_in_terminal(lambda: sys.stdout.write(f"{harmless(text)}\n"))
        else:
            sys.stdout.write(f"\x1b[2K{harmless(text)}\n")

    async def _follow(self, agent: Agent) -> None:
        with suppress(RecollectError):
            status = await agent.status()
            if self._screen is not None:
                self._screen.follow(status)

    def _prompt_session(self) -> PromptSession[str]:
        return PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            history=MaskedHistory(self._order.space_name, pii=self._order.settings.redaction.pii),
            completer=WordCompleter(_completions, sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            style=Style.from_dict({"bottom-toolbar": "noreverse", "prompt": "ansicyan bold"}),
            mouse_support=False,
        )

    async def _read_line(self) -> str | None:
        self._ends_next = False
        try:
            while not (text := await self._session.prompt_async(handle_sigint=False)).strip():
                continue
        except (EOFError, KeyboardInterrupt):
            return None
        return text

    def _toolbar(self) -> str:
        if self._ends_next:
            return "Ctrl-C again ends the chat"
        return "" if self._screen is None else self._screen.status()

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        typing = ~is_searching

        @bindings.add("enter", filter=typing)
        def send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @bindings.add("escape", "enter", filter=typing)
        @bindings.add("c-j", filter=typing)
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @bindings.add("c-c", filter=typing)
        def clear_or_end(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            elif self._ends_next:
                event.app.exit(exception=EOFError())
            else:
                self._ends_next = True

        @bindings.add("c-o")
        def open_newest(_event: KeyPressEvent) -> None:
            if (screen := self._screen) is not None:
                run_in_terminal(lambda: screen.show(None))

        return bindings

    async def _turn(self, agent: Agent, screen: Screen, text: str) -> None:
        screen.begin()
        drawing = asyncio.create_task(_keep_drawing(screen))
        self._in_turn = True
        try:
            async with aclosing(agent.run(text)) as events:
                async for event in events:
                    screen.on(event)
            await self._follow(agent)
        finally:
            self._in_turn = False
            drawing.cancel()
            screen.end()

    def _stop(self) -> None:
        if self._in_turn and self._screen is not None and self._agent is not None:
            self._screen.stopping()
            self._agent.abort()

    async def _ask(self, question: PersonQuestion) -> bool:
        """Ask the person for permission, and ignore keys typed before the question."""
        from recollect.agent.chat.screen import QUESTIONS

        screen = self._screen
        if screen is None:
            return False
        screen.ask(question)
        asking: PromptSession[str] = PromptSession(QUESTIONS[question.kind][1])
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        clear_typeahead(asking.app.input)
        answer = ""
        try:
            while answer not in ("y", "yes", "n", "no"):
                answer = (await asking.prompt_async(handle_sigint=False)).strip().lower()
        except (EOFError, KeyboardInterrupt):
            self._stop()
        finally:
            screen.begin()
        return answer in ("y", "yes")


@contextmanager
def _keys_unseen(terminal: int) -> Iterator[None]:
    """Hide keys typed between prompts until the next prompt. Ctrl-C still sends a signal."""
    before = termios.tcgetattr(terminal)
    during = termios.tcgetattr(terminal)
    during[0] &= ~termios.ICRNL
    during[3] = (during[3] | termios.NOFLSH) & ~(termios.ECHO | termios.ICANON)
    during[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(terminal, termios.TCSANOW, during)
    sys.stdout.write(_PASTE_ON)
    sys.stdout.flush()
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # the terminal may be closed
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            sys.stdout.write(_PASTE_OFF)
            sys.stdout.flush()


async def _keep_drawing(screen: Screen) -> None:
    while True:
        screen.draw()
        await asyncio.sleep(FRAME_SECONDS)
