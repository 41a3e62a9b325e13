"""The chat in a terminal: a prompt, a turn that streams above it, keys while it works.

prompt_toolkit (the extra `chat`) reads lines, rich draws. While the agent works, Ctrl-C stops the
turn, Ctrl-O opens the newest folded line, and typed keys wait for the next prompt; a question is
answered only by a line that was begun after it was asked. The chat leaves the terminal unchanged
and the session whole, also if a signal ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from recollect.agent.chat.opening import ChatOrder, PersonQuestion, opened_agent
from recollect.agent.chat.output import harmless, logging_to
from recollect.errors import MissingExtra, RecollectError, TranscriptError
from recollect.system.config.places import chat_history_file

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import run_in_terminal
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.filters import is_searching
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys
    from prompt_toolkit.shortcuts import CompleteStyle
    from prompt_toolkit.styles import Style
except ImportError:
    raise MissingExtra(feature="the chat in a terminal", extra="chat") from None

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPress, KeyPressEvent

    from recollect.agent.chat.screen import Screen
    from recollect.agent.loop import Agent

FRAME_SECONDS: Final = 0.1
"""The live region is drawn at most so often."""
PROMPT: Final = "› "
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_ANSWERS: Final[Mapping[str, bool]] = {"y": True, "yes": True, "n": False, "no": False}
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


def talk(order: ChatOrder) -> int:
    """Chat until the user ends it; the exit code."""
    try:
        return asyncio.run(TerminalChat(order).run())
    except KeyboardInterrupt:  # while the memory is opened
        return 130


class MaskedHistory(FileHistory):
    """The lines typed in the chats of a space, for their owner alone, with secrets masked.

    Words that a transcript may not keep, such as those of `/memory add`, are left out. If the disk
    fails, the chat continues without it.
    """

    def __init__(self, space: str, *, pii: bool = False) -> None:
        super().__init__(chat_history_file(space))
        self._pii = pii

    def load_history_strings(self) -> Iterable[str]:
        """Read the lines of earlier chats, the newest first."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Add one to the file."""
        from recollect.adapters.session.files import open_for_one, private_folder
        from recollect.agent.commands import Command, read_command, recordable
        from recollect.core.rules.redaction import redact

        command = read_command(string)
        if isinstance(command, Command) and recordable(command) != command.argument:
            return
        lines = redact(string, pii=self._pii).text.split("\n")
        entry = f"\n# {datetime.now(UTC).isoformat()}\n" + "".join(f"+{line}\n" for line in lines)
        path = Path(os.fsdecode(self.filename))
        with suppress(OSError, TranscriptError):
            private_folder(path.parent)
            descriptor = open_for_one(path, create=True)  # forgetting locks it, too
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
    """Shows logged messages of any thread in the chat's."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._loop = asyncio.get_running_loop()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message."""
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._show, record.getMessage())


class TerminalChat:
    """One chat, from its first prompt to its end."""

    def __init__(self, order: ChatOrder) -> None:
        self._order = order
        self._screen: Screen | None = None
        self._question: asyncio.Future[bool] | None = None
        self._ahead: list[KeyPress] = []
        self._older_line = False
        self._in_turn = False
        self._ends_next = False
        self._session: PromptSession[str] = self._prompt_session()

    async def run(self) -> int:
        """Prompt, turn, prompt, until the end."""
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
                async with opened_agent(self._order, self._ask) as agent:
                    from recollect.agent.chat.screen import Screen

                    self._screen = Screen(self._order.settings, agent.model_name)
                    await self._follow(agent)
                    # raw from the first prompt to the end: between a prompt and its turn a cooked
                    # terminal would make a signal of Ctrl-C and swallow Ctrl-D
                    with self._session.app.input.raw_mode():
                        await self._talk(agent)
        except RecollectError as error:
            sys.stderr.write(f"recollect: {harmless(str(error))}\n")
            code = 2
        except (asyncio.CancelledError, OSError):  # a terminal that hung up takes nothing more
            if not code:
                raise
        return code

    async def _talk(self, agent: Agent) -> None:
        while (text := await self._typed()) is not None:
            words = text.split()
            if words == ["/exit"]:
                return
            if words[:1] == ["/show"] and self._screen is not None:
                number = words[1] if len(words) > 1 else ""
                self._screen.show(int(number) if number.isdecimal() else None)
            else:
                await self._turn(agent, text)

    def _note(self, text: str) -> None:
        """Show a logged message, wherever the cursor is."""
        if self._in_turn and self._screen is not None:
            self._screen.note(text)
        elif self._session.app.is_running:
            run_in_terminal(lambda: sys.stdout.write(f"{harmless(text)}\n"))
        else:
            sys.stdout.write(f"\x1b[2K{harmless(text)}\n")

    async def _follow(self, agent: Agent) -> None:
        """Show the figures of `/status` in the status line."""
        with suppress(RecollectError):
            status = await agent.status()
            if self._screen is not None:
                self._screen.follow(status)

    # The prompt

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

    async def _typed(self) -> str | None:
        """The next line; None if the user ends the chat."""
        self._ends_next = False
        try:
            while not (text := await self._session.prompt_async(handle_sigint=False)).strip():
                continue
        except (EOFError, KeyboardInterrupt):
            return None
        return text

    def _toolbar(self) -> Any:
        if self._ends_next:
            return "Ctrl-C again ends the chat"
        return "" if self._screen is None else ANSI(self._screen.status())

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
            run_in_terminal(self._show_newest)

        return bindings

    def _show_newest(self) -> None:
        if self._screen is not None:
            self._screen.show(None)

    # A turn

    async def _turn(self, agent: Agent, text: str) -> None:
        screen = self._screen
        assert screen is not None
        screen.begin()
        loop = asyncio.get_running_loop()
        with self._keys(lambda press: self._is_ours(press, agent)):
            loop.add_signal_handler(signal.SIGWINCH, screen.resized)
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
                loop.remove_signal_handler(signal.SIGWINCH)
                screen.end()

    @contextmanager
    def _keys(self, take: Callable[[KeyPress], bool]) -> Iterator[None]:
        """Read keys while there is no prompt; keys that are not taken wait for it."""
        source = self._session.app.input
        self._ahead = get_typeahead(source)

        def ready() -> None:
            for press in source.read_keys():
                if not take(press):
                    self._ahead.append(press)
            if self._question is not None:
                self._show_typed()

        sys.stdout.write(_PASTE_ON)
        sys.stdout.flush()
        try:
            with source.attach(ready):
                yield
        finally:
            store_typeahead(source, self._ahead)
            sys.stdout.write(_PASTE_OFF)
            sys.stdout.flush()

    def _line(self) -> list[KeyPress]:
        """The keys typed ahead after the last Enter."""
        ends = [at for at, press in enumerate(self._ahead, 1) if press.key == Keys.Enter]
        return self._ahead[ends[-1] if ends else 0 :]

    def _is_ours(self, press: KeyPress, agent: Agent) -> bool:
        if press.key == Keys.CPRResponse:
            return True
        if press.key == Keys.ControlC:
            self._answer(yes=False)
            if self._screen is not None:
                self._screen.stopping()
            agent.abort()
            return True
        if press.key == Keys.ControlO:
            self._show_newest()
            return True
        return self._question is not None and self._is_answer(press)

    def _show_typed(self) -> None:
        if self._screen is not None:
            self._screen.typed("".join(press.data for press in self._line()))

    def _is_answer(self, press: KeyPress) -> bool:
        """Whether a key was taken for the question; other keys are typed ahead."""
        line = self._line()
        before = self._ahead[: len(self._ahead) - len(line)]
        if press.key == Keys.Enter:
            meant = _ANSWERS.get("".join(one.key for one in line).lower())
            if self._older_line or (line and meant is None):
                self._older_line = False
                return False
            self._ahead = before
            if meant is not None:
                self._answer(yes=meant)
            return True
        if press.key in (Keys.ControlH, Keys.ControlU) and line:
            self._ahead = before + (line[:-1] if press.key == Keys.ControlH else [])
            self._older_line = self._older_line and len(self._ahead) > len(before)
            return True
        return False

    def _answer(self, *, yes: bool) -> None:
        question, self._question = self._question, None
        if question is not None and not question.done():
            question.set_result(yes)

    async def _ask(self, question: PersonQuestion) -> bool:
        """Ask the person whether it may be done."""
        if self._screen is None:
            return False
        self._question = asyncio.get_running_loop().create_future()
        self._older_line = bool(self._line())
        self._screen.ask(question)
        self._show_typed()
        try:
            return await self._question
        finally:
            self._question = None
            self._screen.asked()


async def _keep_drawing(screen: Screen) -> None:
    while True:
        screen.draw()
        await asyncio.sleep(FRAME_SECONDS)
