"""A workflow with many events in its history, executed by a worker of this process.

    python -m benchmarks.peers.temporal_workflow ADDRESS EVENTS

Activities, a hundred at once, until the history is so long; it prints the id of the run of the workflow `many`.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

NAME, QUEUE = "many", "benchmark"
AT_ONCE = 100
GROUP_EVENTS = 330
"""How many events a group of activities adds at most."""
TRIES_MAX = 100


@activity.defn
async def step(number: int) -> str:
    """One activity."""
    return f"line {number:06}"


@workflow.defn
class Many:
    """Groups of activities."""

    @workflow.run
    async def run(self, events: int) -> int:
        """Execute groups until the history has about so many events."""
        done = 0
        while workflow.info().get_current_history_length() < events - GROUP_EVENTS:
            numbers, limit = range(done, done + AT_ONCE), timedelta(seconds=60)
            steps = [workflow.execute_activity(step, each, start_to_close_timeout=limit) for each in numbers]
            await asyncio.gather(*steps)
            done += AT_ONCE
        return done


async def connected(address: str) -> Client:
    """A client, once the server accepts one."""
    for tries in range(TRIES_MAX):
        try:
            return await Client.connect(address)
        except RuntimeError:
            if tries == TRIES_MAX - 1:
                raise
            await asyncio.sleep(0.2)
    raise AssertionError


async def main(address: str, events: int) -> None:
    """Execute it."""
    client = await connected(address)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=QUEUE, workflows=[Many], activities=[step], workflow_runner=runner):
        handle = await client.start_workflow(Many.run, events, id=NAME, task_queue=QUEUE)
        await handle.result()
        print((await handle.describe()).run_id, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
