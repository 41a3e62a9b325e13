"""The chat in a terminal: a line to type at, a turn that streams above it, keys while it works.

Typing is prompt_toolkit's (the extra `chat`), drawing is rich's; between two prompts the live
region is ours. The memory is opened beside the first prompt. While the agent works, Ctrl-C stops
the turn, Ctrl-O opens what was folded last, and what is typed waits for the next prompt; a question
is answered only by a line that was begun after it was asked. Must never leave the terminal changed,
nor end a session otherwise than whole, also where a signal ends the chat.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recollect.agent.chat.opening import ChatOrder, PersonQuestion, opened_agent
from recollect.agent.chat.output import harmless, logging_to
from recollect.errors import MissingExtra, RecollectError, TranscriptError
from recollect.system.config.places import chat_history_file

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import get_app_or_none, run_in_terminal
    from prompt_toolkit.completion import Completer, Completion
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
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyPress, KeyPressEvent

    from recollect.agent.chat.screen import Screen
    from recollect.agent.loop import Agent

FRAME_SECONDS: Final = 0.1
"""The live region is drawn at most so often."""
PROMPT: Final = "› "
_IMPORTING: Final = threading.Lock()
"""Two threads that import modules of one package may find one of them half loaded. The agent is
imported in a thread while somebody types: what a typed line needs comes first, and waits here."""
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_ANSWERS: Final[Mapping[str, bool]] = {"y": True, "yes": True, "n": False, "no": False}
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "status": ("detail",),
    "memory": ("show", "search", "why", "add", "forget"),
}


def talk(order: ChatOrder) -> int:
    """Talk until the user ends it; the exit code."""
    return asyncio.run(TerminalChat(order).run())


# What one types at


class MaskedHistory(FileHistory):
    """What was typed in the chats of a space, kept for its owner alone; secrets in it are masked.

    Words that a transcript may not keep, such as those of `/memory add`, are not kept here either.
    Where the disk refuses, the chat goes on without it.
    """

    def __init__(self, space: str, *, pii: bool = False) -> None:
        super().__init__(chat_history_file(space))
        self._pii = pii

    def load_history_strings(self) -> Iterable[str]:
        """What earlier chats left, the newest first."""
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Add one to the file."""
        _import_for_lines()
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


class CommandCompleter(Completer):
    """Completes commands, and the words that some of them take."""

    def get_completions(self, document: Document, _event: object) -> Iterable[Completion]:
        """What could stand there."""
        text = document.text_before_cursor
        if not text.startswith("/"):
            return
        name, space, rest = text[1:].partition(" ")
        words = _ARGUMENTS.get(name, ()) if space else command_names()
        typed = rest if space else name
        for word in words:
            if word.startswith(typed):
                more = " " if not space and word in _ARGUMENTS else ""
                yield Completion(word + more, display=word, start_position=-len(typed))


def command_names() -> tuple[str, ...]:
    """Every command that a chat knows."""
    from typing import get_args

    _import_for_lines()
    from recollect.agent.commands import CommandName, TerminalCommand

    return tuple(sorted({*get_args(CommandName), *get_args(TerminalCommand)}))


class ShownLog(logging.Handler):
    """Hands what is logged, in whichever thread, to one who shows it in the chat's."""

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
        self._opening: asyncio.Task[None] | None = None
        self._agent: asyncio.Future[Agent] | None = None
        self._prompted = asyncio.Event()
        self._closing = asyncio.Event()
        self._screen: Screen | None = None
        self._question: asyncio.Future[bool] | None = None
        self._ahead: list[KeyPress] = []
        self._older_line = False
        self._in_turn = False
        self._ends_next = False
        self._turns = 0
        self._session: PromptSession[str] = self._prompt_session()

    async def run(self) -> int:
        """Prompt, turn, prompt, until the end."""
        loop = asyncio.get_running_loop()
        self._agent = loop.create_future()
        self._opening = asyncio.create_task(self._hold())
        self._session.app.after_render += lambda _app: self._prompted.set()
        sys.stdout.write("recollect · /help, Ctrl-D ends\n")
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
            # raw from the first prompt to the end: between a prompt and its turn a cooked terminal
            # would make a signal of Ctrl-C and swallow Ctrl-D
            with self._session.app.input.raw_mode(), logging_to(ShownLog(self._note)):
                await self._talk()
        except RecollectError as error:
            sys.stderr.write(f"recollect: {harmless(str(error))}\n")
            code = 2
        except (asyncio.CancelledError, OSError):  # a terminal that hung up takes nothing more
            if not code:
                raise
        finally:
            self._closing.set()
            if not self._agent.done():
                self._opening.cancel()
            with suppress(RecollectError, asyncio.CancelledError):
                await self._opening
        return code

    async def _talk(self) -> None:
        while (text := await self._typed()) is not None:
            if text.split() in (["/exit"], ["/quit"]):
                return
            try:
                agent = await self._opened()
            except EOFError:
                return
            if agent is not None and not self._own_command(text):
                await self._turn(agent, text)

    def _note(self, text: str) -> None:
        """Show what was logged, wherever the cursor is."""
        if self._in_turn and self._screen is not None:
            self._screen.note(text)
        elif self._session.app.is_running:
            run_in_terminal(lambda: sys.stdout.write(f"{harmless(text)}\n"))
        else:
            sys.stdout.write(f"\x1b[2K{harmless(text)}\n")

    # Opening beside the first prompt

    async def _hold(self) -> None:
        """Open the agent, and hold it until the chat ends."""
        assert self._agent is not None
        try:
            await self._prompted.wait()  # first of all one can type
            await asyncio.to_thread(_import_drawing)
            from recollect.agent.chat.screen import Screen

            async with opened_agent(self._order, self._ask) as agent:
                self._screen = Screen(self._order.settings, agent.model_name)
                self._agent.set_result(agent)
                self._redraw_prompt()
                await self._follow(agent)
                await self._closing.wait()
        except RecollectError as error:
            if self._agent.done():
                raise
            self._agent.set_exception(error)
            app = get_app_or_none()
            if self._session.app.is_running and app is not None:
                self._session.app.exit(exception=error)

    async def _follow(self, agent: Agent) -> None:
        """Let the status line tell what `/status` would now."""
        began = self._turns
        with suppress(RecollectError):
            status = await agent.status()
            if self._screen is not None and self._turns == began:  # no turn has begun meanwhile
                self._screen.follow(status)
                self._redraw_prompt()

    async def _opened(self) -> Agent | None:
        """The agent; None where the user waits no longer, EOFError where the chat is to end."""
        assert self._agent is not None
        if self._agent.done():
            return self._agent.result()
        left: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def leaves(press: KeyPress) -> bool:
            if press.key in (Keys.ControlC, Keys.ControlD) and not left.done():
                left.set_result(press.key == Keys.ControlD)
                return True
            return press.key == Keys.CPRResponse

        sys.stdout.write("opening memory… Ctrl-C goes back\r")
        with self._keys(leaves):
            either: set[asyncio.Future[Any]] = {self._agent, left}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        sys.stdout.write("\x1b[2K")
        if self._agent.done():
            return self._agent.result()
        if left.result():
            raise EOFError
        sys.stdout.write("not sent, memory is not open yet; Up brings it back\n")
        return None

    def _redraw_prompt(self) -> None:
        if self._session.app.is_running:
            self._session.app.invalidate()

    # The prompt

    def _prompt_session(self) -> PromptSession[str]:
        return PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            history=MaskedHistory(self._order.space_name, pii=self._order.settings.redaction.pii),
            completer=CommandCompleter(),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            style=Style.from_dict({"bottom-toolbar": "noreverse", "prompt": "ansicyan bold"}),
            mouse_support=False,
        )

    async def _typed(self) -> str | None:
        """What was typed; None where the user ends the chat."""
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
        if self._screen is None:
            return "opening memory…"
        return ANSI(self._screen.status())

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

    def _own_command(self, text: str) -> bool:
        """Carry out what is the terminal's own; whether it was."""
        words = text.split()
        if words[:1] == ["/show"] and self._screen is not None:
            number = int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
            self._screen.show(number)
            return True
        return False

    # A turn

    async def _turn(self, agent: Agent, text: str) -> None:
        screen = self._screen
        assert screen is not None
        self._turns += 1
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
        """Keys while there is no prompt; what is not taken waits for it."""
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
        """What was typed ahead behind the last Enter."""
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
        """Whether a key was taken for the question; all that is no answer is typed ahead."""
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
        """Ask whether it may be done."""
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


def _import_drawing() -> None:
    """What takes long to load, in a thread beside the first prompt."""
    _import_for_lines()
    import rich.markdown
    import rich.syntax  # noqa: F401


def _import_for_lines() -> None:
    """What a line that is typed needs, in one thread at a time."""
    with _IMPORTING:
        pass
