"""Gates that are reviews: work is done when its reviewer says so, in so many words."""

import pytest

from maos.runs.worker import _approves


@pytest.mark.parametrize(
    "review",
    [
        "APPROVED",
        "I looked at it all.\n\nAPPROVED",
        "fine\n**APPROVED**",
        "fine\n> APPROVED: no remarks\n",
        "`APPROVED`.",
    ],
)
def test_approved(review: str) -> None:
    assert _approves(review)


@pytest.mark.parametrize(
    "review",
    [
        "",
        "REJECTED: no test",
        "NOT APPROVED",
        "APPROVED\nbut only\nREJECTED",
        "It cannot be APPROVED",
        "**NOT APPROVED**",
    ],
)
def test_not_approved(review: str) -> None:
    assert not _approves(review)
