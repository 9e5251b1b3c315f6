"""Burr with its SQLite persister: an action that goes round, saved after each time. It has no branches to speak of."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchmarks.workflow_driver import Order, result_of


def execute(order: Order) -> dict[str, float]:
    """Seconds of the steps one after the other."""
    from burr.core import ApplicationBuilder, State, action, default, expr
    from burr.core.persistence import SQLitePersister

    persister = SQLitePersister.from_values(str(Path(order["directory"]) / "burr.db"))
    assert persister.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    persister.initialize()

    @action(reads=["number", "total"], writes=["number", "total", "last"])
    def one(state: State) -> State:
        found = result_of(state["number"])
        return state.update(number=state["number"] + 1, total=state["total"] + found["number"], last=found)

    @action(reads=["total"], writes=[])
    def end(state: State) -> State:
        return state

    def run(steps: int, name: str) -> float:
        app: Any = (
            ApplicationBuilder()
            .with_actions(one, end)
            .with_transitions(("one", "one", expr(f"number < {steps}")), ("one", "end", default))
            .with_state(number=0, total=0, last={})
            .with_entrypoint("one")
            .with_identifiers(app_id=f"{name}-{os.getpid()}")
            .with_state_persister(persister)
            .build()
        )
        began_s = time.perf_counter()
        app.run(halt_after=["end"])
        return time.perf_counter() - began_s

    try:
        run(1, "warm-up")
        return {"sequential": run(order["steps"], "line")} if order["steps"] else {}
    finally:
        persister.connection.close()
