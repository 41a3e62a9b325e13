"""The chat in a terminal: a prompt, and the lines of a turn.

prompt_toolkit (in the extra `chat`) reads lines. While the agent works, Ctrl-C stops the turn, and
typed keys wait for the next prompt. Keys typed before a question are dropped, so that they do not
answer the question. After a signal the terminal is restored."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, get_args

from recollect.agent.chat.opening import ChatOrder, PersonQuestion, open_chat_agent
from recollect.agent.chat.plain import print_status, run_turn
from recollect.agent.chat.view import LineView
from recollect.errors import MissingExtra, RecollectError, TranscriptError
from recollect.system.places import sessions_folder
from recollect.system.plain_text import harmless
from recollect.system.telemetry import logging_to

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import create_app_session, run_in_terminal
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.filters import is_searching
    from prompt_toolkit.history import History, ThreadedHistory
    from prompt_toolkit.input.typeahead import clear_typeahead
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output.plain_text import PlainTextOutput
    from prompt_toolkit.shortcuts import CompleteStyle
    from prompt_toolkit.styles import Style
    from prompt_toolkit.utils import is_dumb_terminal
except ImportError:
    raise MissingExtra(feature="the chat in a terminal", extra="chat") from None

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

    from recollect.agent.loop import Agent
    from recollect.core.formats.pi_session import PiEntry

PROMPT: Final = "› "
_PASTE_MODES: Final = ("\x1b[?2004h", "\x1b[?2004l")


def talk(order: ChatOrder) -> int:
    output = PlainTextOutput(sys.stdout) if is_dumb_terminal() else None  # no escape sequences
    try:
        with create_app_session(output=output):
            return asyncio.run(TerminalChat(order).run())
    except KeyboardInterrupt:  # the user pressed Ctrl-C while the memory was being opened
        return 130


class TypedHistory(History):
    """The messages and commands of all chats of a space, newest first, as transcripts have them:
    with secrets masked, and without everything that was forgotten."""

    def __init__(self, space: str) -> None:
        super().__init__()
        self._folder = sessions_folder(space)

    def load_history_strings(self) -> Iterator[str]:
        from recollect.adapters.session.entries import FORGOTTEN
        from recollect.adapters.session.transcript import read_session_file

        with suppress(OSError):
            paths = sorted(self._folder.glob("*.jsonl"), key=os.path.getmtime, reverse=True)
            for path in paths:
                with suppress(TranscriptError):
                    for entry in reversed(read_session_file(path).entries):
                        text = _text_of_typed(entry)
                        if text and FORGOTTEN not in text:
                            yield text

    def store_string(self, string: str) -> None:
        """Store nothing: the transcript has the line."""


def _text_of_typed(entry: PiEntry) -> str | None:
    from recollect.adapters.session.entries import text_of
    from recollect.agent.conversation import COMMAND_KIND

    if entry.role == "user":
        return text_of(entry)
    data = entry.value.get("data")
    if entry.text("customType") != COMMAND_KIND or not isinstance(data, dict):
        return None
    return f"/{data.get('command')} {data.get('argument', '')}".strip()


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
        self._view = LineView(sys.stdout, sys.stdout)
        self._agent: Agent | None = None
        self._ends_next = False
        self._session: PromptSession[str] = self._prompt_session()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._view.note("recollect · /help, Ctrl-D ends")
        code = 0
        talking = asyncio.current_task()

        def end(number: int) -> None:
            nonlocal code
            code = 128 + number
            if talking is not None:
                talking.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, end, number)
        try:
            with logging_to(ShownLog(self._note)):
                async with open_chat_agent(self._order, self._ask) as agent:
                    self._agent = agent
                    loop.add_signal_handler(signal.SIGINT, agent.abort)
                    await print_status(agent, self._view)
                    with _keys_unseen(sys.stdin.fileno()):
                        await self._talk(agent)
        except RecollectError as error:
            sys.stderr.write(f"recollect: {harmless(str(error))}\n")
            code = 2
        except (asyncio.CancelledError, OSError):  # a closed terminal accepts no more output
            if not code:
                raise
        return code

    async def _talk(self, agent: Agent) -> None:
        while (text := await self._read_line(self._session)) is not None:
            words = text.split()
            if words == ["/exit"]:
                return
            if words[:1] == ["/show"]:
                number = words[1] if len(words) > 1 else ""
                self._view.show(int(number) if number.isdecimal() else None)
            elif words:
                await run_turn(agent, self._view, text)

    def _note(self, text: str) -> None:
        if self._session.app.is_running:
            run_in_terminal(partial(self._view.note, text))
        else:
            self._view.note(text)

    def _prompt_session(self) -> PromptSession[str]:
        return PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            history=ThreadedHistory(TypedHistory(self._order.space_name)),
            completer=WordCompleter(_completions, sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=self._bindings(),
            style=Style.from_dict({"prompt": "ansicyan bold"}),
        )

    async def _read_line(self, session: PromptSession[str]) -> str | None:
        self._ends_next = False
        try:
            return await session.prompt_async(handle_sigint=False)
        except (EOFError, KeyboardInterrupt):
            return None

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
                self._note("Ctrl-C again ends the chat")

        @bindings.add("c-o")
        def show_newest(_event: KeyPressEvent) -> None:
            run_in_terminal(partial(self._view.show, None))

        return bindings

    async def _ask(self, question: PersonQuestion) -> bool:
        """Ask the person for permission, and ignore keys typed before the question."""
        asking: PromptSession[str] = PromptSession(self._view.ask(question))
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        clear_typeahead(asking.app.input)
        answer: str | None = ""
        while answer not in ("y", "yes", "n", "no", None):
            answer = await self._read_line(asking)
            answer = answer and answer.strip().lower()
        if answer is None and self._agent is not None:
            self._agent.abort()
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
    paste_on, paste_off = ("", "") if is_dumb_terminal() else _PASTE_MODES
    sys.stdout.write(paste_on)
    sys.stdout.flush()
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # the terminal may be closed
            termios.tcsetattr(terminal, termios.TCSANOW, before)
            sys.stdout.write(paste_off)
            sys.stdout.flush()
