"""What a person said in a conversation about a run (`maos chat`), in the stream `chat/<run>`.

Only the person's side is kept here: what became of it is in the streams of the run, its agents and its messages, and
their order in the journal tells what was said when.
"""

from __future__ import annotations


def stream(run: str) -> str:
    """The stream of the conversation about a run."""
    return f"chat/{run}"
