"""A process of its own for each system: reads what to do from standard input, prints how long each part took.

python -m benchmarks.workflow_driver MODULE
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, TypedDict

AT_ONCE = 64
TEXT = "What a step found out, in a few words that somebody may want to read later, or another step. "


class Order(TypedDict):
    """What to carry out, and where."""

    directory: str
    url: str
    steps: int
    """So many one after the other."""
    rounds: int
    """So many times 64 at once."""


def result_of(number: int) -> dict[str, Any]:
    """What every step returns, in all systems."""
    return {"number": number, "text": TEXT}


if __name__ == "__main__":
    order: Order = json.load(sys.stdin)
    print(json.dumps(importlib.import_module(sys.argv[1]).execute(order)), flush=True)
