"""A folder to work in, and commands called in it."""

from tests.cli.agent.conftest import agents, call, here  # noqa: F401
