"""Builds the documentation as a site of plain files: `make docs`.

    .venv/bin/python docs/build.py [FOLDER]      into build/site unless another folder is named

The pages are the Markdown files of this repository as they are, so a Git host shows the same. Their order and their
place in the navigation is that of the links in docs/index.md: a page that nothing there leads to is an error, and so is
a link or heading that is not there, or anything that a browser would fetch from another host. The pages work from the
disk, without a server, the search included.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

ROOT = Path(__file__).parents[1]
THEME = Path(__file__).parent / "theme"
HOME = "docs/index.md"
LISTS = ("docs/decisions/README.md", "docs/examples.md")
"""Pages whose links come below them in the navigation, as long as nothing else has them."""

PLACES = {
    HOME: "index.html", "README.md": "about.html", "ARCHITECTURE.md": "architecture.html",
    "CHANGELOG.md": "changelog.html", "CONTRIBUTING.md": "contributing.html",
    "CODE_OF_CONDUCT.md": "code-of-conduct.html", "SECURITY.md": "reporting.html",
    "benchmarks/README.md": "benchmarks.html", "docs/decisions/README.md": "decisions/index.html",
}  # fmt: skip
"""Where pages are that are not where their file is."""

COLOURS = (("default", ""), ("github-dark", "@media (prefers-color-scheme: dark)"))
_FETCHED = re.compile(r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*?(?:src|href|data)=\"([^\"]*)\"")
_FETCHED_BY_STYLE = re.compile(r"@import|url\((?!['\"]?data:)([^)]*)\)")


class Broken(Exception):
    """What is wrong with the pages, all of it."""


class Section(NamedTuple):
    """What stands below one heading, for the search."""

    title: str
    anchor: str
    text: str


class Entry(NamedTuple):
    """A page in the navigation."""

    source: str
    title: str
    below: tuple[Entry, ...] = ()


class Part(NamedTuple):
    """A heading of the navigation, and the pages below it."""

    title: str
    entries: tuple[Entry, ...]


class Page:
    """A file of the repository, read."""

    def __init__(self, source: str) -> None:
        self.source = source
        text = (ROOT / source).read_text()
        if source.endswith(".py"):
            text = f"# {Path(source).name}\n\n```python\n{text}```\n"
        self.tokens = _markdown().parse(text)
        self.headings = list(_name_headings(self.tokens))
        self.title = self.headings[0][1] if self.headings else source
        self.anchors = {anchor for _level, _title, anchor in self.headings}

    @property
    def place(self) -> str:
        """Where it is in the site."""
        return place_of(self.source)

    def links(self) -> Iterator[tuple[Token, str, str]]:
        """Each link to something in the repository: its token, the file it leads to, and the heading."""
        for token in self.tokens:
            for child in token.children or ():
                target = child.attrGet("src" if child.type == "image" else "href")
                if child.type in ("link_open", "image") and "://" not in str(target):
                    file, _, heading = unquote(str(target)).partition("#")
                    folder = Path(self.source).parent
                    yield child, os.path.normpath(folder / file) if file else self.source, heading

    def sections(self) -> Iterator[Section]:
        """Its text by headings."""
        title, anchor, words = self.title, "", list[str]()
        for index, token in enumerate(self.tokens):
            if token.type == "heading_open":
                if anchor or words:
                    yield Section(title, anchor, " ".join(" ".join(words).split()))
                title, anchor, words = _plain(self.tokens[index + 1]), str(token.attrGet("id")), []
            elif token.type == "inline" and self.tokens[index - 1].type != "heading_open":
                words.append(_plain(token))
            elif token.type == "fence":
                words.append(token.content)
        yield Section(title, anchor, " ".join(" ".join(words).split()))


def build(folder: Path) -> int:
    """Build the site into a folder, and say how many pages it has; Broken says all that is wrong."""
    pages = {source: Page(source) for source in sources()}
    navigation = list(navigation_of(pages))
    problems = [*_unreachable(pages, navigation)]
    for page in pages.values():
        problems += _resolve(page, pages)
    if problems:
        raise Broken("\n".join(problems))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    template = Template((THEME / "page.html").read_text())
    for page in pages.values():
        path = folder / page.place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_whole(page, pages, navigation, template))
    for path in (*ROOT.glob("docs/**/*.json"), *ROOT.glob("docs/pictures/*.svg"), *ROOT.glob("docs/pictures/*.png")):
        copied = folder / path.relative_to(ROOT / "docs")
        copied.parent.mkdir(exist_ok=True)
        shutil.copy(path, copied)
    shutil.copy(THEME / "site.js", folder)
    (folder / "site.css").write_text((THEME / "site.css").read_text() + _colours())
    (folder / "search.js").write_text(f"window.searchIndex = {json.dumps(list(_search(pages)), ensure_ascii=False)};\n")
    problems = list(fetched_from_elsewhere(folder))
    if problems:
        raise Broken("\n".join(problems))
    return len(pages)


def sources() -> list[str]:
    """The files of the repository that are pages."""
    patterns = ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.py")
    return sorted({path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)})


def place_of(source: str) -> str:
    """Where a file is in the site."""
    return PLACES.get(source) or str(Path(source.removeprefix("docs/")).with_suffix(".html"))


def navigation_of(pages: Mapping[str, Page]) -> Iterator[Part]:
    """The parts of the navigation: the second-level headings of the index and the links below each."""
    home = pages[HOME]
    listed = {file for _token, file, _heading in home.links()}
    part, entries = "", list[Entry]()
    for index, token in enumerate(home.tokens):
        if token.type == "heading_open" and token.tag == "h2":
            if entries:
                yield Part(part, tuple(entries))
            part, entries = _plain(home.tokens[index + 1]), []
        elif token.type == "inline" and home.tokens[index - 2].type == "list_item_open":
            entries += list(_entries(home.source, token, pages, listed))[:1]
    if entries:
        yield Part(part, tuple(entries))


def _entries(source: str, token: Token, pages: Mapping[str, Page], listed: set[str]) -> Iterator[Entry]:
    children = token.children or []
    for index, child in enumerate(children):
        if child.type == "link_open" and "://" not in str(child.attrGet("href")):
            file = os.path.normpath(Path(source).parent / str(child.attrGet("href")))
            if file not in pages:
                continue
            below = dict.fromkeys(
                goal for _link, goal, _heading in pages[file].links() if goal in pages and goal not in listed
            )
            inner = [Entry(goal, pages[goal].title) for goal in below] if file in LISTS else []
            text = "".join(each.content for each in children[index + 1 : _closing(children, index)])
            yield Entry(file, text, tuple(inner))


def _closing(children: Sequence[Token], index: int) -> int:
    return next(at for at in range(index, len(children)) if children[at].type == "link_close")


def _unreachable(pages: Mapping[str, Page], navigation: Sequence[Part]) -> Iterator[str]:
    reached = {HOME}
    for part in navigation:
        for entry in part.entries:
            reached |= {entry.source, *(each.source for each in entry.below)}
    for source in pages:
        if source not in reached:
            yield f"{source}: no link in {HOME} leads there, so it has no place in the navigation"


def _resolve(page: Page, pages: Mapping[str, Page]) -> Iterator[str]:
    """Turn the links of a page into links of the site, and say which lead nowhere."""
    for token, file, heading in page.links():
        if file not in pages and file.startswith("examples"):
            file, heading = "docs/examples.md", ""  # the folder
        goal = pages.get(file)
        if not (ROOT / file).exists():
            yield f"{page.source}: a link leads to {file}, which is not there"
        elif heading and (goal is None or heading not in goal.anchors):
            yield f"{page.source}: a link leads to {file}#{heading}, which is no heading there"
        elif token.type == "image":
            token.attrSet("src", os.path.relpath(file.removeprefix("docs/"), Path(page.place).parent))
        elif goal is not None or file.endswith(".json"):
            way = os.path.relpath(place_of(file) if goal else file.removeprefix("docs/"), Path(page.place).parent)
            token.attrSet("href", f"{way}#{heading}" if heading else way)
        else:
            token.attrs = {"title": f"{file} in the repository"}  # a file of the source: no page of the site


def _whole(page: Page, pages: Mapping[str, Page], navigation: Sequence[Part], template: Template) -> str:
    """A page with everything around it."""
    way = os.path.relpath(".", Path(page.place).parent)
    order = [HOME, *(each.source for part in navigation for entry in part.entries for each in (entry, *entry.below))]
    at = order.index(page.source)
    around = [(order[at - 1], "prev") if at else None, (order[at + 1], "next") if at + 1 < len(order) else None]
    contents = [(title, anchor) for level, title, anchor in page.headings if level == 2]
    return template.substitute(
        title=html.escape(page.title),
        way=way,
        navigation="".join(_part(part, page, way) for part in navigation),
        content=_markdown().renderer.render(page.tokens, _markdown().options, {}),
        contents="".join(f'<li><a href="#{anchor}">{html.escape(title)}</a></li>' for title, anchor in contents),
        contents_hidden="" if len(contents) > 1 else " hidden",
        around="".join(
            f'<a rel="{rel}" href="{way}/{place_of(source)}">{html.escape(pages[source].title)}</a>' if each else ""
            for each in around
            for source, rel in ([each] if each else [])
        ),
        source=html.escape(page.source),
    )


def _part(part: Part, page: Page, way: str) -> str:
    items = "".join(_item(entry, page, way) for entry in part.entries)
    is_open = any(page.source in (each.source, *(inner.source for inner in each.below)) for each in part.entries)
    unfolded = " open" if is_open or page.source == HOME else ""
    return f"<details{unfolded}><summary>{html.escape(part.title)}</summary><ul>{items}</ul></details>\n"


def _item(entry: Entry, page: Page, way: str) -> str:
    inner = ""
    if page.source in (entry.source, *(each.source for each in entry.below)) and entry.below:
        inner = f"<ul>{''.join(_item(each, page, way) for each in entry.below)}</ul>"
    current = ' aria-current="page"' if entry.source == page.source else ""
    link = f'<a href="{way}/{place_of(entry.source)}"{current}>{html.escape(entry.title)}</a>'
    return f"<li>{link}{inner}</li>"


def _search(pages: Mapping[str, Page]) -> Iterator[tuple[str, str, str, str]]:
    for page in pages.values():
        for section in page.sections():
            where = f"{page.place}#{section.anchor}" if section.anchor else page.place
            yield where, page.title, section.title, section.text


def fetched_from_elsewhere(folder: Path) -> Iterator[str]:
    """Everything that a browser would fetch from another host, or that is not in the folder."""
    for path in sorted(folder.rglob("*.html")):
        for target in _FETCHED.findall(path.read_text()):
            is_within = ":" not in target and not target.startswith("/") and (path.parent / target).is_file()
            if not is_within and not target.startswith("data:"):
                yield f"{path.relative_to(folder)} fetches {target}, which is not in the site"
    for path in sorted(folder.rglob("*.css")):
        for match in _FETCHED_BY_STYLE.finditer(path.read_text()):
            yield f"{path.relative_to(folder)} fetches something: {match[0]}"


# Markdown


def _markdown() -> MarkdownIt:
    """The dialect of Git hosts, as far as our pages use it."""
    parser = MarkdownIt("commonmark").enable("table")
    renderer: Any = parser.renderer
    renderer.rules.update(
        fence=_fence, html_block=_comment, html_inline=_comment,
        table_open=lambda *_: '<div class="table"><table>\n', table_close=lambda *_: "</table></div>\n",
    )  # fmt: skip
    return parser


def _name_headings(tokens: Sequence[Token]) -> Iterator[tuple[int, str, str]]:
    """Give each heading the anchor that Git hosts give it: level, text and anchor."""
    seen: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            text = _plain(tokens[index + 1])
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            seen[anchor] = seen.get(anchor, -1) + 1
            anchor = f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor
            token.attrSet("id", anchor)
            children = tokens[index + 1].children
            assert children is not None
            link = Token("html_inline", "", 0, content=f'<a class="here" href="#{anchor}" aria-label="link">#</a>')
            link.meta = {"ours": True}
            children.append(link)
            yield int(token.tag[1]), text, anchor


def _plain(token: Token) -> str:
    """The words of a line, without what makes them bold or a link."""
    return "".join(
        " " if each.type in ("softbreak", "hardbreak") else each.content
        for each in token.children or ()
        if each.type != "html_inline"
    )


def _fence(tokens: Sequence[Token], index: int, *_: object) -> str:
    language = tokens[index].info.strip()
    name = {"output": "text", "": "text", "py": "python"}.get(language, language)
    code = highlight(tokens[index].content, get_lexer_by_name(name, stripnl=False), HtmlFormatter(nowrap=True))
    return f'<pre class="highlight {html.escape(language)}"><code>{code}</code></pre>\n'


def _comment(tokens: Sequence[Token], index: int, *_: object) -> str:
    """Comments are for those who write the pages. Other HTML a Git host might show in another way."""
    token = tokens[index]
    if token.meta.get("ours"):
        return token.content
    if not token.content.lstrip().startswith("<!--"):
        raise Broken(f"HTML in a page: {token.content.strip()}")
    return ""


def _colours() -> str:
    """The colours of code, by day and by night."""
    rules = []
    for style, condition in COLOURS:
        names = HtmlFormatter(style=style).get_style_defs(".highlight")
        lines = [line for line in names.splitlines() if line.startswith(".highlight .")]
        rules.append("\n".join([f"{condition} {{", *lines, "}"] if condition else lines))
    return "\n".join(rules) + "\n"


def main() -> int:
    """Build the site and say where it is."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    try:
        count = build(folder)
    except Broken as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{count} pages: open {os.path.relpath(folder / 'index.html')} in a browser\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
