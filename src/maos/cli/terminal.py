"""A live terminal: lines scroll above a frame that is kept up to date, and a person types at a prompt below it.

prompt_toolkit draws and reads keys on the event loop. Only the writing is done in a thread: a terminal that does not
read blocks neither the engine in this process nor Ctrl+C.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path

from prompt_toolkit.application import Application, in_terminal, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, has_focus, is_searching
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import Input, create_pipe_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, ConditionalContainer, Dimension, FormattedTextControl, HSplit, Layout
from prompt_toolkit.layout.containers import Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.flush_stdout import flush_stdout
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.widgets import SearchToolbar

from maos.cli.failures import print_above
from maos.cli.input import InputLine, Prompt
from maos.cli.render import clean

LINE_CHARS_MAX = 20_000
PROMPT_LINES_MAX = 4
CANDIDATES_MAX = 12

Complete = Callable[[str], Sequence[str]]
"""Returns what the beginning of a line can become."""


class LiveTerminal:
    """Standard output and input, from `start` to `stop`. Only for an output that `render.drawable` accepts."""

    by_person = True
    """Whether a person types the lines, and can be asked."""

    def __init__(self, complete: Complete = lambda _beginning: ()) -> None:
        self._complete = complete
        self._queue: asyncio.Queue[InputLine | None] = asyncio.Queue()
        self._next: Prompt | None = None
        self._prompt: Prompt | None = None
        """What the line means that is being typed."""
        self._candidates: Sequence[str] = ()
        self._frame: AnyFormattedText = ""
        self._buffer = Buffer(
            multiline=False,
            history=InMemoryHistory(),
            read_only=Condition(lambda: self._prompt is None),
            on_text_changed=lambda _buffer: self._edited(),
        )
        self._resources = ExitStack()
        self._running: asyncio.Task[None] | None = None
        self._printing: set[asyncio.Task[None]] = set()
        self._output = _ThreadedOutput(
            sys.stdout, _size, os.environ.get("TERM"), default_color_depth=ColorDepth.from_env(), enable_cpr=False
        )
        self._app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=self._keys(),
            editing_mode=EditingMode.VI if _wants_vi() else EditingMode.EMACS,
            erase_when_done=True,
            input=self._input(),
            output=self._output,
        )

    # --- drawing ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Draw, and read keys, until `stop`."""
        if self._running is None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, self._continue)
            self._running = asyncio.create_task(self._run())
            print_above.append(self._print_soon)

    async def stop(self) -> None:
        """Erase the frame and the prompt, and leave the terminal as it was."""
        running, self._running = self._running, None
        if running is None:
            return
        print_above.remove(self._print_soon)
        if self._printing:
            await asyncio.wait(self._printing)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCONT)
        if self._app.is_running:
            self._app.exit()
        await asyncio.wait([running])
        if not running.cancelled():  # as all tasks are when Ctrl+C ends the event loop
            running.result()
        await self._output.drain()

    async def _run(self) -> None:
        with self._resources, suppress(EOFError):  # the terminal was closed: SIGHUP or an error when writing reports it
            await self._app.run_async(handle_sigint=False, set_exception_handler=False)

    def draw(self, frame: AnyFormattedText) -> None:
        """Replace the frame."""
        self._frame = frame
        self._app.invalidate()

    async def draw_ansi(self, frame: str) -> None:
        """Replace the frame by text that has escape sequences of its own, after the last one is written."""
        await self._output.drain()
        self.draw(ANSI(frame.rstrip("\n")))

    async def print(self, text: str) -> None:
        """Print lines above the frame; return when everything is written. OSError when the terminal is closed."""
        if text:
            await run_in_terminal(lambda: self._output.write_raw(text))
        await self._output.drain()

    def _print_soon(self, text: str) -> None:
        """Print lines above the frame, for a caller that cannot wait."""
        printing = asyncio.create_task(self.print(text))
        self._printing.add(printing)
        printing.add_done_callback(self._printing.discard)

    @asynccontextmanager
    async def hidden(self) -> AsyncIterator[None]:
        """Hand the terminal over to another program."""
        keys = self._app.input
        async with in_terminal():
            await self._output.drain()
            with keys.line_mode() if isinstance(keys, _KeyInput) else nullcontext():
                yield

    # --- lines -----------------------------------------------------------------------------------------------

    def ask(self, prompt: Prompt | None) -> None:
        """Set what the next line means; a line that is being typed keeps its meaning."""
        self._next = prompt
        self._refresh()

    def forget(self) -> None:
        """Drop lines that were typed before their prompt was visible."""
        while not self._queue.empty():
            self._queue.get_nowait()

    def drop(self) -> bool:
        """Drop the line that is being typed; False when it is empty."""
        if not self._buffer.text:
            return False
        self._buffer.reset()
        self._edited()
        return True

    def remember(self, lines: Sequence[str]) -> None:
        """Put lines into the history."""
        for line in lines:
            self._buffer.history.append_string(line)
        self._buffer.reset()

    async def next(self) -> InputLine | None:
        """Return the next line; None when Ctrl+D was pressed."""
        return await self._queue.get()

    def _edited(self) -> None:
        self._candidates = ()
        self._refresh()

    def _refresh(self) -> None:
        if not self._buffer.text:
            self._prompt = self._next
        self._app.invalidate()

    # --- the application -------------------------------------------------------------------------------------

    def _input(self) -> Input:
        if sys.stdin is not None and sys.stdin.isatty():
            return _KeyInput(sys.stdin)
        return self._resources.enter_context(create_pipe_input())  # no keys ever come

    def _layout(self) -> Layout:
        search = SearchToolbar(backward_search_prompt="history › ", forward_search_prompt="history › ")
        line = Window(
            BufferControl(
                self._buffer,
                input_processors=[BeforeInput(lambda: self._prompt.label if self._prompt else "", "bold fg:ansicyan")],
                search_buffer_control=search.control,
                preview_search=True,
            ),
            height=Dimension(max=PROMPT_LINES_MAX),
            wrap_lines=True,
            dont_extend_height=True,
        )
        is_asking = Condition(lambda: self._prompt is not None)
        below = HSplit([search, _text(lambda: "  ".join(self._candidates), "dim")])
        # The line is there also while nothing is asked, and the cursor in it: a killed process cannot show the cursor
        # again, and what the shell prints then begins below the frame.
        parts = [_text(lambda: self._frame), _text(self._about, "fg:ansiyellow"), line]
        return Layout(HSplit([*parts, ConditionalContainer(below, is_asking)]), line)

    def _about(self) -> str:
        return "\n".join(clean(each) for each in self._prompt.about) if self._prompt else ""

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(self._buffer)
        at_start = Condition(lambda: not self._buffer.text)
        keys.add("c-c", filter=~is_searching)(lambda _event: os.kill(os.getpid(), signal.SIGINT))
        keys.add("c-\\")(lambda _event: os.kill(os.getpid(), signal.SIGQUIT))
        keys.add("c-z")(lambda event: event.app.create_background_task(self._suspend()))
        keys.add("c-d", filter=typing & at_start)(lambda _event: self._queue.put_nowait(None))
        keys.add("enter", filter=typing)(lambda _event: self._accept())
        keys.add("tab", filter=typing)(lambda _event: self._complete_line())
        keys.add(Keys.BracketedPaste, filter=typing)(self._paste)
        return keys

    def _accept(self) -> None:
        prompt, text = self._prompt, _printable(self._buffer.text)
        if prompt is not None:
            self._buffer.append_to_history()
            self._buffer.reset()
            self._edited()
            self._queue.put_nowait(InputLine(text, prompt))

    def _paste(self, event: KeyPressEvent) -> None:
        if self._prompt is not None:
            self._buffer.insert_text(_printable(event.data)[:LINE_CHARS_MAX])

    def _complete_line(self) -> None:
        """Complete what is before the cursor as far as all candidates agree, and list them."""
        before = self._buffer.document.text_before_cursor
        found = self._complete(before) if self._prompt else ()
        shared = os.path.commonprefix(found)  # noqa: RUF071 - of texts, not of paths
        if len(shared) > len(before):
            self._buffer.insert_text(shared[len(before) :])
        self._candidates = found[:CANDIDATES_MAX] if len(found) > 1 else ()

    def _continue(self) -> None:
        """Draw below what the shell has printed while this process was stopped; the shell also set the mode of keys."""
        self._app.input.raw_mode().__enter__()
        self._app.renderer.reset()
        self._app.invalidate()

    async def _suspend(self) -> None:
        async with self.hidden():
            os.kill(0, signal.SIGTSTP)


class _KeyInput(Vt100Input):
    """Keys as they are pressed, also while lines are printed above the frame: a terminal that collects lines, as
    prompt_toolkit makes it for that time, would keep a Ctrl+D for itself."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()

    def line_mode(self) -> AbstractContextManager[None]:
        """Have the terminal collect lines, for another program."""
        return super().cooked_mode()


class _ThreadedOutput(Vt100_Output):
    """Collects what one turn of the event loop draws, and writes it in a thread."""

    _pending = ""
    _writing: asyncio.Task[None] | None = None
    _error: OSError | None = None

    def flush(self) -> None:
        self._pending += "".join(self._buffer)
        self._buffer.clear()
        if self._pending and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def drain(self) -> None:
        """Wait until everything is written; OSError when the terminal is closed."""
        self.flush()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        if self._error is not None:
            raise self._error

    async def _write(self) -> None:
        while self._pending:
            data, self._pending = self._pending, ""
            try:
                await asyncio.to_thread(flush_stdout, self.stdout, data)
            except OSError as error:
                self._error = error


def _size() -> Size:
    try:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        columns, rows = 0, 0
    return Size(rows or 24, columns or 80)


def _text(content: Callable[[], AnyFormattedText], style: str = "") -> ConditionalContainer:
    """Text of as many lines as there are; nothing when it is empty."""
    window = Window(FormattedTextControl(content), style=style, dont_extend_height=True)
    return ConditionalContainer(window, Condition(lambda: bool(content())))


def _printable(text: str) -> str:
    """A text as one line: line breaks and tabs become spaces, other control characters are dropped."""
    spaced = text.replace("\r\n", " ").translate({ord(each): " " for each in "\r\n\t"})
    return "".join(char for char in spaced if char.isprintable())


def _wants_vi() -> bool:
    """Whether the person's readline programs have the keys of vi."""
    path = Path(os.environ.get("INPUTRC") or "~/.inputrc").expanduser()
    try:
        return any(line.split() == ["set", "editing-mode", "vi"] for line in path.read_text("utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return False
