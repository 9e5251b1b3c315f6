"""An engine with 100 live agents is killed; how long until the next one hears all of them again."""

from __future__ import annotations

from benchmarks.measure import Figures, Report, Row, Subject, interleave
from benchmarks.resume import ALL, Engine
from benchmarks.scratch import Scratch

AGENTS = 100


async def measure(scratch: Scratch, quick: bool) -> Report:
    """Start once, then kill and start again and again."""
    kills = 5 if quick else 15
    with scratch.directory() as directory:
        engine = Engine(directory, AGENTS)
        try:
            engine.heard()

            async def restart() -> Figures:
                engine.kill(agents=False)
                return engine.restart()

            rounds = await interleave(f"attach, {AGENTS} agents", [Subject("maos", restart)], kills)
        finally:
            engine.kill(agents=True)
    figures = [each[ALL] for each in rounds.figures["maos"]]
    return Report([rounds], [Row.of(f"attach.{AGENTS}.seconds", figures, "<= 1")])
