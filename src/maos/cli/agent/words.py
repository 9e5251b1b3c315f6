"""Words for people: what an agent does, how it ended, how long it took and what it cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from maos.cli import render
from maos.cli.render import clean, shorten
from maos.model.failure import TABLE

Fact = Mapping[str, Any]
"""A fact as plain data."""

STOPPING = {
    "asked": "stopping, as requested",
    "time_limit": "stopping: its time limit is reached",
    "silence": "stopping: it has been silent for too long",
    "unattended": "stopping: no engine attached to it in time",
    "fenced": "stopping: another process has taken it over",
}

TELLING = ("command", "file_path", "path", "pattern", "query", "url", "description", "prompt", "text")
"""Arguments of tools that say by themselves what it is about, the most telling first."""


def tidy(text: str) -> str:
    """A line of output as a terminal would show it: tabs are spaces, and the line's end is not part of it."""
    return clean(text.removesuffix("\r").expandtabs(8))


def one_line(text: str, width: int | None) -> str:
    """A text on one line of a width."""
    return shorten(clean(" ".join(text.split())), width)


def of_fact(fact: Fact, width: int) -> Sequence[tuple[str, str]]:
    """What there is to say of a fact, and how it looks; nothing for what only counts."""
    match fact["kind"]:
        case "tool_result" if fact.get("failed"):
            return [(shorten(f"  failed: {one_line(fact.get('output', ''), width)}", width), "bad")]
        case "thought":
            return [(shorten(f"… {one_line(fact.get('text', ''), width)}", width), "dim")]
        case "retry":
            return [(_retry(fact), "warning")]
        case "trouble":
            return [(_trouble(fact), "bad")]
        case "permission_denied":
            return [(f"was refused {fact.get('tool', 'a tool')}: {one_line(fact.get('message', ''), width)}", "bad")]
        case "session":
            new = "its session could not be resumed; a new one is started" if fact.get("instead_of") else ""
            model = f"model {fact['model']}" if fact.get("model") else ""
            return [(text, style) for text, style in ((new, "warning"), (model, "dim")) if text]
        case "plan":
            return [(shorten(_plan(fact), width), "dim")]
    return []


def tool(name: str, input: Any) -> str:
    """A tool with what it is used for."""
    if isinstance(input, Mapping):
        found = next((input[key] for key in TELLING if isinstance(input.get(key), str)), None)
        if found is None:
            found = json.dumps(input, ensure_ascii=False) if input else ""
    else:
        found = "" if input is None else str(input)
    return f"{one_line(name or 'a tool', 40)}  {one_line(found, 1000)}".rstrip()


def _plan(fact: Fact) -> str:
    """How far an agent is with its plan."""
    entries = fact.get("entries", [])
    done = sum(each.get("status") == "completed" for each in entries)
    now = next((each.get("content", "") for each in entries if each.get("status") == "in_progress"), "")
    return f"plan: {done} of {len(entries)} done{f', now: {one_line(now, 200)}' if now else ''}"


def _retry(fact: Fact) -> str:
    why = fact.get("error") or (f"status {fact['status']}" if fact.get("status") else "no answer")
    return f"retries in {duration(float(fact.get('delay_s', 0)))} ({one_line(str(why), 80)})"


def _trouble(fact: Fact) -> str:
    failure = TABLE.get(fact["failure"])
    meaning = failure.meaning if failure else fact["failure"]
    said = one_line(str(fact.get("message", "")), 400)
    until = f"; until {render.when(fact['reset_us'])}" if fact.get("reset_us") else ""
    return f"{meaning}{f': {said}' if said and said != meaning else ''}{until}"


def continue_with(command: str) -> str:
    """The command that attaches to an agent or resumes it, after its verb."""
    return f"{command.split()[2]} with: {command}"


def ending(status: str, failure: str = "", message: str = "") -> str:
    """How an attempt ended, in a few words."""
    if status == "done":
        return "done"
    if failure == "stopped":
        return "stopped on request"
    known, said = TABLE.get(failure), one_line(message, 400)
    meaning = known.meaning if known else failure or "reason unknown"
    if said and failure == "failed":  # the message says all there is: exit code 1
        return f"{status}: {said}"
    return f"{status}: {meaning}{f' ({said})' if said and said != meaning else ''}"


def duration(seconds: float) -> str:
    """A stretch of time as people say it: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, smaller, small_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            rest = whole % unit // smaller
            return f"{whole // unit} {name} {rest} {small_name}" if rest else f"{whole // unit} {name}"
    return f"{whole} s"


def money(usd: float) -> str:
    """An amount of dollars; the smallest ones with more digits."""
    return f"${usd:.2f}" if usd >= 0.01 or not usd else f"${usd:.4f}"


def count(number: int) -> str:
    """A number in at most four characters: 950, 1.2k, 48k, 3.1M."""
    if number < 1000:
        return str(number)
    for size, unit in ((1e3, "k"), (1e6, "M")):
        if number < 999.5 * size:
            return f"{number / size:.1f}{unit}" if number < 9.95 * size else f"{number / size:.0f}{unit}"
    return f"{number / 1e9:.1f}G"
