"""What tests of plan files share with those of the command line."""

from tests.cli.conftest import invoke  # noqa: F401
