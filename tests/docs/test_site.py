"""The documentation as a site: complete, without a link that leads nowhere, and by itself."""

import importlib.util
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import click
import pytest

from maos.cli.program import program
from tests.docs.documents import ROOT

ASKED_FOR = {
    "state API": ["reference/python-api.html", "tutorial/durable-state.html"],
    "states": ["reference/states.html"],
    "commands, settings, events": ["reference/cli.html", "reference/settings.html", "reference/event-types.html"],
    "migration guide": ["howto/upgrade.html", "howto/move-from-the-original.html"],
    "recovery runbooks": ["howto/recover-from-damage.html", "howto/troubleshoot.html"],
    "performance tuning": ["howto/tune-performance.html", "explanation/what-it-costs.html"],
    "security model and compliance": ["explanation/security.html"],
    "monitoring and alerts": ["howto/monitor.html", "howto/get-notified.html"],
    "troubleshooting": ["howto/troubleshoot.html"],
    "state format": ["reference/store-format.html", "reference/bundle-format.html"],
    "architecture": ["architecture.html", "decisions/index.html"],
    "guarantees": ["explanation/guarantees.html", "explanation/what-survives-what.html"],
    "comparison": ["explanation/comparison.html"],
    "tutorials": ["tutorial/first-agent.html", "tutorial/first-run.html", "tutorial/first-workflow.html"],
    "examples": ["examples.html", "examples/01_first_state.html"],
    "changelog": ["changelog.html"],
}
FETCHING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return _load(ROOT / "docs" / "build.py")


@pytest.fixture(scope="module")
def site(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    build.build(folder)
    return folder


class Read(HTMLParser):
    """What is in a page: its links, its anchors, what it fetches, and the links of its navigation."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.fetched: list[str] = []
        self.navigation: list[str] = []
        self._in_navigation = False
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._in_navigation = self._in_navigation or tag == "nav"
        self.anchors += [each for each in [given.get("id")] if each]
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
            self.navigation += [str(given["href"])] if self._in_navigation else []
        if FETCHING.get(tag) in given:
            self.fetched.append(str(given[FETCHING[tag]]))

    def handle_endtag(self, tag: str) -> None:
        self._in_navigation = self._in_navigation and tag != "nav"


@pytest.fixture(scope="module")
def read(site: Path) -> dict[Path, Read]:
    return {path: Read(path) for path in site.rglob("*.html")}


@pytest.mark.parametrize("subject", ASKED_FOR)
def test_every_subject_that_was_asked_for_has_a_page_that_says_something(
    subject: str, site: Path, read: dict[Path, Read]
) -> None:
    """R-1010: and it can be reached from the first page."""
    linked = {(site / each).resolve() for each in read[site / "index.html"].navigation}
    for name in ASKED_FOR[subject]:
        page = site / name
        assert page.is_file(), f"there is no page {name}"
        assert len(re.sub(r"<[^>]*>", " ", page.read_text().partition("<main")[2]).split()) > 120, f"{name} is thin"
        assert page in linked or name.startswith("examples/"), f"{name} is not in the navigation"


def test_every_page_can_be_reached_by_following_links_of_the_navigation(site: Path, read: dict[Path, Read]) -> None:
    """R-1010."""
    reached: set[Path] = set()
    ahead = [site / "index.html"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            ahead += [(page.parent / each).resolve() for each in read[page].navigation]
    assert reached == set(read)
    assert len(reached) > 70


def test_no_link_and_no_anchor_of_the_site_leads_nowhere(read: dict[Path, Read]) -> None:
    for page, found in read.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            goal = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert goal.is_file(), f"{page.name}: {link}"
            if parts.fragment and goal in read:
                assert unquote(parts.fragment) in read[goal].anchors, f"{page.name}: {link}"


def test_anchors_of_a_page_are_unique(read: dict[Path, Read]) -> None:
    assert [page.name for page, found in read.items() if len(set(found.anchors)) != len(found.anchors)] == []


def test_a_page_loads_nothing_from_other_hosts(site: Path, read: dict[Path, Read]) -> None:
    for page, found in read.items():
        for target in found.fetched:
            assert target == "data:," or (page.parent / target).is_file(), f"{page.name} fetches {target}"
    style, script = (site / "site.css").read_text(), (site / "site.js").read_text()
    assert not re.search(r"@import|url\(|https?:", style)
    assert not re.search(r"fetch\(|XMLHttpRequest|https?:|import\(", script)


def test_what_would_be_fetched_from_elsewhere_is_noticed(build: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<script defer src="//cdn.example/x.js"></script><img alt="" src="gone.png">')
    (tmp_path / "site.css").write_text("@import 'https://fonts.example';")
    assert len(list(build.fetched_from_elsewhere(tmp_path))) == 3


def test_the_search_knows_every_page_and_heading(site: Path, read: dict[Path, Read]) -> None:
    text, script = (site / "search.js").read_text(), (site / "site.js").read_text()
    name = text.partition(" = ")[0]
    assert f"resolve({name})" in script
    assert f"function {name.removeprefix('window.')}(" not in script, "a function of that name would be overwritten"
    for page, found in read.items():
        name = page.relative_to(site).as_posix()
        for anchor in {*found.anchors} - {"menu", "search", "found", "navigation", "content"}:
            assert f'"{name}#{anchor}"' in text


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("# A\n\n[gone](gone.md)\n", "gone.md, which is not there"),
        ("# A\n\n[heading](index.md#gone)\n", "#gone, which is no heading there"),
        ("# A\n\n<b>HTML</b>\n", "HTML in a page"),
        ("# A\n", "no link in docs/index.md leads there"),
    ],
)
def test_what_is_wrong_with_a_page_is_an_error(
    page: str, says: str, tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("[a-z]*.md"))
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n## Part\n\n* [One](one.md)\n")
    (tmp_path / "docs" / "one.md").write_text("# One\n")
    if "leads there" in says:
        (tmp_path / "docs" / "two.md").write_text(page)
    else:
        (tmp_path / "docs" / "one.md").write_text(page)
    shutil.rmtree(tmp_path / "docs" / "decisions")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    with pytest.raises(build.Broken, match=re.escape(says)):
        build.build(tmp_path / "site")


COMMAND = re.compile(r"(?<![\w./\"-])maos((?: [a-z][a-z-]*)+)")
NO_COMMANDS = {" bundle"}
"""How a bundle begins."""


def test_every_command_that_the_pages_name_exists() -> None:
    """In prose, where nothing runs them: each word that could be a command of a group is one."""
    wrong = []
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        for code in re.findall(r"`([^`]+)`", text):
            for words in {*COMMAND.findall(" ".join(code.split()))} - NO_COMMANDS:
                found: Any = program
                for word in words.split():
                    if not isinstance(found, click.Group):
                        break
                    found = found.get_command(click.Context(found), word)
                    if found is None:
                        wrong.append(f"{path.relative_to(ROOT)}: maos{words}")
                        break
    assert wrong == []


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its classes name one another
    spec.loader.exec_module(module)
    return module
