"""When the files of agents that run are saved (R-1002)."""

import pytest

from maos.engine.checkpoints import is_due
from maos.settings.schema import CheckpointSettings


@pytest.mark.parametrize(
    ("settings", "turns", "timer"),
    [
        (CheckpointSettings(), [1, 2, 3, 4], True),
        (CheckpointSettings(enabled=False), [], False),
        (CheckpointSettings(frequency="every_n_steps", steps=2), [2, 4], False),
        (CheckpointSettings(frequency="on_gates"), [], False),
        (CheckpointSettings(frequency="time_based"), [], True),
        (CheckpointSettings(frequency="manual"), [], False),
    ],
    ids=lambda each: str(each.frequency) if isinstance(each, CheckpointSettings) else "",
)
def test_the_settings_say_what_makes_a_checkpoint(settings: CheckpointSettings, turns: list[int], timer: bool) -> None:
    assert [turn for turn in range(1, 5) if is_due(settings, "turn", turn)] == turns
    assert is_due(settings, "timer", 0) == timer
