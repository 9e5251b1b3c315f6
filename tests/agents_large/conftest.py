"""The journal and the home that tests with an engine share."""

from tests.engine.conftest import home, m

__all__ = ["home", "m"]
