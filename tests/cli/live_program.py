"""A program with a live terminal: it prints every line that is typed, with the prompt that it was typed at."""

import asyncio
import signal

from maos.cli.input import Prompt, heard
from maos.cli.terminal import LiveTerminal

NAMES = ("/status ", "/stop ")


async def main() -> None:
    terminal = LiveTerminal(lambda beginning: [each for each in NAMES if each.startswith(beginning)])
    loop = asyncio.get_running_loop()
    count = 0
    printing: list[asyncio.Task[None]] = []

    def interrupted() -> None:
        dropped = terminal.drop()
        printing.append(loop.create_task(terminal.print(f"interrupted, {'dropped' if dropped else 'nothing typed'}\n")))

    loop.add_signal_handler(signal.SIGUSR1, lambda: terminal.ask(Prompt("second", "second › ", ["? asks \x1b[2J it"])))
    with heard(interrupted=interrupted, sent_away=lambda _number: None):
        terminal.ask(Prompt("first", "first › "))
        terminal.draw([("bold", "the frame"), ("", "\nhas two lines")])
        terminal.start()
        while (line := await terminal.next()) is not None:
            count += 1
            assert line.prompt is not None
            await terminal.print(f"line {count}: {line.prompt.kind} {line.text!r}\n")
            if line.text == "edit":
                async with terminal.hidden():
                    await asyncio.to_thread(input, "not drawn now: ")
        await terminal.stop()
    print("ended")


asyncio.run(main())
