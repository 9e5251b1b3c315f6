"""The pictures of the documentation, taken of a server of their own; one whose text has changed fails (R-902)."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import PHONE, REQUEST, Opened, Stage

Picture = Callable[[str, Page], None]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A server with nothing but the run of the pictures."""
    made = Stage(tmp_path_factory.mktemp("pictures"))
    made.begin()
    yield made
    made.give("views")
    for run in made.api("GET", "/runs?limit=500")["runs"]:
        made.api("POST", f"/runs/{run['id']}/cancel", json={})
    made.stop()


def test_pictures_of_the_fleet_and_the_inbox(stage: Stage, run: str, opened: Opened, picture: Picture) -> None:
    page = opened(f"{stage.url}/")
    expect(page.get_by_role("article", name=REQUEST).locator(".tile", has_text="bench")).to_contain_text("212 MB/s")
    expect(page.locator(".rail .count")).to_have_text("2")
    picture("fleet", page)
    page.goto(f"{stage.url}/#/inbox/{run}/gate/parser/0/1")
    expect(page.locator(".ask-view .diff-rows")).to_contain_text("class Parser:")
    picture("inbox", page)


def test_pictures_of_a_run_and_its_past(stage: Stage, run: str, opened: Opened, picture: Picture) -> None:
    page = opened(f"{stage.url}/#/run/{run}", theme="dark")
    expect(page.get_by_text("asked: Is the new parser")).to_be_visible()
    expect(page.get_by_text("three callers pass the whole document")).to_be_visible()
    expect(page.locator(".curve")).to_be_visible()
    picture("timeline", page)
    page = opened(f"{stage.url}/#/run/{run}/time")
    expect(page.get_by_text("Messages by then")).to_be_visible()
    expect(page.locator(".scrubber")).to_be_visible()
    picture("time", page)


def test_a_picture_of_a_review(stage: Stage, run: str, opened: Opened, picture: Picture) -> None:
    page = opened(f"{stage.url}/#/run/{run}/review/parser")
    expect(page.get_by_text("class Parser:")).to_be_visible()
    page.get_by_role("button", name="Comment on line 9").click()
    page.get_by_label("Comment", exact=True).fill("Blank lines should be skipped here")
    picture("review", page)


def test_a_picture_of_a_phone(stage: Stage, run: str, opened: Opened, picture: Picture) -> None:
    page = opened(f"{stage.url}/#/inbox", size=PHONE)
    page.get_by_role("listitem").filter(has_text="Shall the docs").get_by_role("link").tap()
    expect(page.get_by_role("button", name="remove it")).to_be_visible()
    picture("phone", page)
