"""langgraph over SqliteSaver: a node that goes round, and 64 of them in one superstep, each on disk before the next."""

from __future__ import annotations

import operator
import os
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

from benchmarks.workflow_driver import AT_ONCE, Order, result_of


class Counting(TypedDict):
    """The state: how far it is, and the sum so far."""

    number: int
    total: Annotated[int, operator.add]
    last: Annotated[dict[str, Any], lambda old, new: new]


def execute(order: Order) -> dict[str, float]:
    """Seconds of each kind of workflow."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Send

    from benchmarks.peers.langgraph_savers import open_sqlite

    saver = open_sqlite(Path(order["directory"]))
    steps = 0

    def one(state: Counting) -> dict[str, Any]:
        found = result_of(state["number"])
        return {"number": state["number"] + 1, "total": found["number"], "last": found}

    line = StateGraph(Counting)
    line.add_node("one", one)
    line.add_edge(START, "one")
    line.add_conditional_edges("one", lambda state: "one" if state["number"] < steps else END)
    sequential: Any = line.compile(checkpointer=saver)

    def each(state: Counting) -> dict[str, Any]:
        found = result_of(state["number"])
        return {"total": found["number"], "last": found}

    fan = StateGraph(Counting)
    fan.add_node("begin", lambda state: {"number": state["number"] + 1})
    fan.add_node("each", each)
    fan.add_node("end", lambda state: {})
    fan.add_edge(START, "begin")
    fan.add_conditional_edges("begin", lambda state: [Send("each", {"number": n}) for n in range(AT_ONCE)], ["each"])
    fan.add_edge("each", "end")
    fan.add_conditional_edges("end", lambda state: "begin" if state["number"] < order["rounds"] else END)
    parallel: Any = fan.compile(checkpointer=saver)

    def invoke(graph: Any, thread: str) -> float:
        config = {
            "configurable": {"thread_id": f"{thread}-{os.getpid()}"},
            "recursion_limit": 10 * (steps + order["rounds"]) + 10,
        }
        began_s = time.perf_counter()
        graph.invoke({"number": 0, "total": 0, "last": {}}, config, durability="sync")
        return time.perf_counter() - began_s

    try:
        invoke(sequential, "warm-up")
        steps = order["steps"]
        taken = {"sequential": invoke(sequential, "line")} if steps else {}
        return taken | ({"parallel": invoke(parallel, "fan")} if order["rounds"] else {})
    finally:
        saver.conn.close()
