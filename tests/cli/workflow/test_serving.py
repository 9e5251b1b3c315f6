"""Workflows that run in a terminal: interrupted twice, loaded from files of any name, and served whatever is wrong."""

import signal
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from tests.cli.workflow.conftest import PATIENCE_S, Shop
from tests.holder.agents import PATIENCE_S as LONGER_S

HANGS = """
import asyncio, pathlib
import maos

@maos.step
async def hangs() -> None:
    pathlib.Path("hangs").touch()
    await asyncio.sleep(600)

@maos.workflow
async def hang() -> None:
    await hangs()
"""
SAME = """
import maos

@maos.workflow
async def same(id: int = 0, options: str = "", zone: str = "") -> list[object]:
    return [id, options, zone]
"""


class Told:
    """What a process says on standard error, line by line, while it runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()

    def wait_for(self, what: str) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: any(what in line for line in self.lines), timeout=LONGER_S)
        assert found, self.lines


def test_a_second_ctrl_c_does_not_wait_for_a_step_that_hangs(shop: Shop) -> None:
    (shop.folder / "hang.py").write_text(HANGS)
    process = shop.begin("workflow", "run", "hang.py", "--id", "h")
    told = Told(process)
    shop.wait_for("h", "steps")
    process.send_signal(signal.SIGINT)
    told.wait_for("pausing h after its current steps finish; Ctrl+C again does not wait for them")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE_S) == 130
    told.wait_for("interrupted; resume with: maos workflow resume h")
    assert "may or may not have taken effect" in shop.maos("workflow", "resume", "h", "--dry-run")
    assert "h: cancel requested; it is cancelled" in shop.maos("workflow", "cancel", "h")


def test_an_argument_may_have_any_name(shop: Shop) -> None:
    (shop.folder / "same.py").write_text(SAME)
    args = ["--arg", "id=5", "--arg", "options=x", "--arg", "zone=here"]
    assert shop.maos("workflow", "run", "same.py", *args) == 'result: [5, "x", "here"]\n'
    assert "nightly" in shop.maos("workflow", "schedule", "add", "nightly", "@daily", "same.py", *args)


def test_what_no_number_holds_is_text(shop: Shop) -> None:
    (shop.folder / "same.py").write_text(SAME)
    out = shop.maos("workflow", "run", "same.py", "7", "--arg", "options=12e4567", "--arg", "zone=NaN")
    assert out == 'result: [7, "12e4567", "NaN"]\n'


@pytest.mark.parametrize("name", ["secrets", "queue", "my-flow", "a.b"])
def test_a_file_takes_no_other_modules_place(shop: Shop, name: str) -> None:
    """Not that of Python's own `secrets` or `queue`, which maos and its libraries import."""
    (shop.folder / "flows").mkdir()
    (shop.folder / "flows" / "beside.py").write_text("WORD = 'beside'\n")
    (shop.folder / "flows" / f"{name}.py").write_text(
        "import maos\nfrom beside import WORD\n\n"
        "@maos.workflow\nasync def says() -> str:\n    import secrets, queue\n"
        "    return f'{WORD} {len(secrets.token_hex(3))} {queue.Queue.__name__}'\n"
    )
    assert shop.maos("workflow", "run", f"flows/{name}.py", "--id", "w") == 'result: "beside 6 Queue"\n'
    assert shop.maos("workflow", "resume", "w") == 'result: "beside 6 Queue"\n'


def test_a_schedule_whose_file_is_gone_keeps_nobody_from_being_served(shop: Shop) -> None:
    for name in ("gone", "broken"):
        (shop.folder / f"{name}.py").write_text(SAME.replace("def same", f"def {name}"))
        shop.maos("workflow", "schedule", "add", name, "@yearly", f"{name}.py")
    (shop.folder / "gone.py").unlink()
    (shop.folder / "broken.py").write_text("raise RuntimeError('out of order')")
    left = shop.begin("workflow", "run", "shop.py:wait_for_it", "--id", "w1")
    shop.wait_for("w1", "waiting")
    left.kill()
    left.wait()
    serving = shop.begin("serve", "--no-http", "shop.py")
    told = Told(serving)
    told.wait_for("the schedule gone cannot be served")
    told.wait_for("the schedule broken cannot be served")
    told.wait_for("resumed w1")
    shop.maos("workflow", "signal", "w1", "go", "7")
    shop.wait_for("w1", "result")
    serving.send_signal(signal.SIGINT)
    assert serving.wait(timeout=PATIENCE_S) == 0
    assert sum("schedule gone" in line for line in told.lines) == 1


def test_workflow_serve_is_a_server_without_http(shop: Shop) -> None:
    """The name that it had before; a killed one leaves its workflow run to the next."""
    shop.maos("workflow", "schedule", "add", "later", "@yearly", "shop.py:wait_for_it")
    left = shop.begin("workflow", "run", "shop.py:wait_for_it", "--id", "w1")
    shop.wait_for("w1", "waiting")
    left.kill()
    left.wait()
    for _ in range(2):
        serving = shop.begin("workflow", "serve")
        Told(serving).wait_for("resumed w1")
        serving.kill()
        serving.wait()
    assert "a server without HTTP" in shop.maos("workflow", "serve", "--no-resume", status=2)


def test_variables_stay_as_they_were_typed(shop: Shop) -> None:
    (shop.folder / "w.yaml").write_text(
        "variables: {version: 0, sha: x}\ntasks:\n- {name: a, command: 'echo {{version}} {{sha}}'}\n"
    )
    out = shop.maos("workflow", "run", "w.yaml", "--auto", "--var", "version=1.10", "--var", "sha=12e4567")
    assert "1.10 12e4567" in out
    assert "use --var NAME=VALUE" in shop.maos("workflow", "validate", "w.yaml", "--var", "version", status=1)


def test_what_is_loaded_is_looked_for_after_pythons_own(tmp_path: Path) -> None:
    """In this process: a folder of flows comes before what is installed, and after what belongs to Python."""
    from maos.workflows import loader

    (tmp_path / "flow_of_its_own.py").write_text("")
    before, modules = list(sys.path), set(sys.modules)
    try:
        loader.load_all(str(tmp_path / "flow_of_its_own.py"))
        here = sys.path.index(str(tmp_path))
        assert sysconfig.get_path("stdlib") in sys.path[:here]
        assert not any(each.endswith("site-packages") for each in sys.path[:here])
        assert any(each.endswith("site-packages") for each in sys.path[here:])
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - modules:
            del sys.modules[name]
