"""Attempts that are only recorded: what an MCP server or a CLI needs to act for an agent that no engine has started."""

from maos.engine.streams import ATTEMPT
from maos.journal.journal import Journal
from maos.model import tool_calls
from maos.model.attempt import attempt_id, stream
from maos.model.events.attempt import AttemptEnded, AttemptPlanned
from maos.model.principal import secret_hash
from maos.model.status import AttemptStatus


def secret_of(attempt: str) -> str:
    """The secret of a planned attempt; another one for each."""
    return f"the secret of {attempt}"


async def plan_attempt(journal: Journal, agent: str, number: int = 1, *, run: str = "") -> dict[str, str]:
    """Record that an attempt begins, unless it has, and that the one before is over; return what proves it."""
    id = attempt_id(agent, number)
    if not await journal.version(stream(id)):
        before = await ATTEMPT.load(journal, attempt_id(agent, number - 1))
        if before is not None and before.is_open:
            ended = AttemptEnded(status=AttemptStatus.FAILED, failure="failed", at_us=1)
            await journal.append(stream(before.id), ended)
        planned = AttemptPlanned(
            agent=agent,
            number=number,
            agent_kind="claude",
            task="",
            session="",
            owner={},
            folder="",
            workspace={
                "name": agent, "path": "", "tree": "", "repository": None, "gitdir": None, "base": None, "notes": [],
                "file_bytes_max": 0, "keep_ignored": [],
            },
            inbox_cursor=0,
            transcript=("", 0),
            at_us=1,
            order={
                "task": "", "resume": False, "cwd": "", "home": "", "model": "", "instructions": "", "turns_max": 0,
                "budget_usd": 0.0, "tools_allowed": [], "permission": "ask", "takes_input": False, "mcp": [],
                "env": [], "argv": [], "time_limit_s": 0.0, "run": run,
            },
            proof=secret_hash(secret_of(id)),
        )  # fmt: skip
        await journal.append(stream(id), planned)
    return {tool_calls.ATTEMPT: id, tool_calls.SECRET: secret_of(id)}
