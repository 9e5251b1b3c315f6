"""A repository and runs in it, as for `maos orchestrate`."""

from tests.cli.agent.conftest import agents, call, here, start  # noqa: F401
from tests.cli.orchestrate.conftest import plan, repository  # noqa: F401
