"""The developer: documents what the analyst finds undocumented, asks how to round, and changes the code accordingly."""

from __future__ import annotations

import re
from pathlib import Path

from maos.demo.agent import DemoAgent
from maos.demo.sample import (
    ALL_FOUND,
    DOCSTRINGS,
    NO_DOCSTRING,
    QUESTION,
    ROUNDING,
    RULE,
    TESTED,
    UNDECIDED,
    UNDECIDED_CODE,
    UNTESTED,
    WHO_CALLS,
)


def main() -> None:
    """Do its task."""
    agent = DemoAgent()
    agent.say("waits for what the analyst finds")
    undecided = agent.hear(lambda text: text.startswith(UNDECIDED))
    rule = agent.ask(QUESTION, list(ROUNDING), undecided.removeprefix(UNDECIDED))
    agent.tell("analyst", f"{WHO_CALLS}share?", type="request")
    agent.hear(lambda text: " is called from " in text)
    agent.hear(lambda text: text.startswith(ALL_FOUND))
    agent.hear(lambda text: text.startswith(UNTESTED))
    for place in agent.hear_all(NO_DOCSTRING):
        path, function = re.sub(r":\d+", "", place.removeprefix(NO_DOCSTRING)).split(" ")
        _document(agent, path, function)
    agent.hear(lambda text: text.startswith("Answer to your question"))  # the same answer, now in its inbox
    code = Path("till/money.py").read_text(encoding="utf-8")
    agent.write("till/money.py", code.replace(UNDECIDED_CODE, ROUNDING[rule]))
    agent.tell("tester", f"{RULE}{rule}", type="coordination")
    agent.hear(lambda text: text.startswith(TESTED))
    agent.finish(f"till/ is documented, and rounds {rule}")


def _document(agent: DemoAgent, path: str, function: str) -> None:
    """Give a function a docstring."""
    code = Path(path).read_text(encoding="utf-8")
    agent.write(path, re.sub(rf"def {function}\(.*\n", rf'\g<0>    """{DOCSTRINGS[function]}"""\n', code))


if __name__ == "__main__":
    main()
