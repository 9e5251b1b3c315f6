"""The how-to about `sqlite3`, where there is such a program."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, Document


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no program sqlite3 here")
def test_the_howto_shows_what_happens(tmp_path: Path) -> None:
    text = (ROOT / "docs/howto/query-with-sqlite3.md").read_text()
    document = Document(re.sub(r"<!-- not run: .* -->\n", "", text))
    assert sum(step.command.startswith("sqlite3 ") for step in document.steps) == 4
    document.run(tmp_path, path=Path(sys.executable).parent, server="")
