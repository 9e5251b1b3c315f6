"""Durable workflows: plain async functions whose steps are recorded."""

import logging

from maos.model.workflow import WorkflowChanged
from maos.workflows.api import (
    agent,
    checkpoint,
    child,
    gate,
    gather,
    now,
    parallel,
    patched,
    publish,
    random,
    signal,
    sleep,
    unique,
)
from maos.workflows.definition import (
    NOT_DONE,
    Found,
    Handle,
    NotWaiting,
    StepDefinition,
    StepFailed,
    Workflow,
    WorkflowFailed,
    find,
    step,
    workflow,
)
from maos.workflows.steps import key

logging.getLogger("maos.workflows").addHandler(logging.NullHandler())  # without it, Python would print warnings

__all__ = [
    "NOT_DONE",
    "Found",
    "Handle",
    "NotWaiting",
    "StepDefinition",
    "StepFailed",
    "Workflow",
    "WorkflowChanged",
    "WorkflowFailed",
    "agent",
    "checkpoint",
    "child",
    "find",
    "gate",
    "gather",
    "key",
    "now",
    "parallel",
    "patched",
    "publish",
    "random",
    "signal",
    "sleep",
    "step",
    "unique",
    "workflow",
]
