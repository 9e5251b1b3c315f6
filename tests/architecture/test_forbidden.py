"""What must not be in the source: nothing revives objects, runs text as code or goes through a shell (A6, A14)."""

import ast
import re

import pytest

from tests.architecture.sources import PACKAGE, calls, imports, sources

REVIVERS = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "joblib", "yaml"}
RUNNERS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "execfile", "input", "breakpoint"}
UNSAFE_FILES = {"tempfile.mktemp", "os.tempnam", "tarfile.open", "zipfile.ZipFile", "shutil.unpack_archive"}
STARTERS = {"subprocess", "multiprocessing", "pty"}
NETWORK = {
    "socket.create_server",
    "asyncio.start_server",
    "http",
    "socketserver",
    "ftplib",
    "telnetlib",
    "urllib.request",
}


def test_there_is_something_to_read() -> None:
    """A test that looks at nothing finds nothing."""
    names = {source.name for source in sources()}
    assert {"app.py", "store/sqlite.py", "journal/codec.py", "state/agents.py", "maos_import_legacy/file.py"} <= names
    assert len(names) > 40


def test_nothing_that_revives_objects_is_imported() -> None:
    """A6: stored bytes become strings, numbers, booleans, None, lists and dictionaries, or an error."""
    found = [
        f"{source.name}:{line} imports {module}"
        for source in sources()
        for module, line in imports(source.tree)
        if module.split(".")[0] in REVIVERS and (source.name, module) != (READS_YAML, "yaml")
    ]
    assert found == []


READS_YAML = "plans/yaml_nodes.py"
YAML_NODES = {"SafeLoader", "Node", "MappingNode", "SequenceNode", "ScalarNode", "MarkedYAMLError", "YAMLError"}


def test_yaml_is_read_as_nodes_and_never_constructed() -> None:
    """A6: tags stand for objects; who looks at nodes only meets none."""
    [source] = [each for each in sources() if each.name == READS_YAML]
    used = {
        node.attr
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml"
    }
    assert used
    assert used <= YAML_NODES


def test_no_text_is_run_as_code() -> None:
    """A6, A14."""
    found = [
        f"{source.name}:{call.lineno} calls {name}"
        for source in sources()
        for name, call in calls(source.tree)
        if name in RUNNERS or name.endswith((".loads_unsafe", ".load_module"))
    ]
    assert found == []


def test_nothing_goes_through_a_shell() -> None:
    """A14: argv is a list, always."""
    found = []
    for source in sources():
        for name, call in calls(source.tree):
            for keyword in call.keywords:
                if keyword.arg == "shell" and not (
                    isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                ):
                    found.append(f"{source.name}:{call.lineno} {name}(shell=…)")
    assert found == []


MAY_START = {
    "agents/environment.py",  # asks an agent's program for its version, before there can be a holder
    "keys/sources.py",  # the client of a key service, which only the user's own settings name
    "maos_demo/agents.py",  # scripted agents: each starts its MCP server as agent programs do
}


def test_production_starts_programs_in_holders_only_and_listens_to_nobody() -> None:
    """A1: agents and git are started by the runner, by argv; nothing opens a port."""
    found = []
    for source in sources():
        if source.name.startswith("maos_testing/"):
            continue
        forbidden = NETWORK if source.name in MAY_START else NETWORK | STARTERS
        for module, line in imports(source.tree):
            if module in NETWORK or module.split(".")[0] in forbidden:
                found.append(f"{source.name}:{line} imports {module}")
        for name, call in calls(source.tree):
            if name in NETWORK:
                found.append(f"{source.name}:{call.lineno} calls {name}")
    assert found == []


def test_no_file_is_made_or_unpacked_carelessly() -> None:
    """A8, A21."""
    found = [
        f"{source.name}:{call.lineno} calls {name}"
        for source in sources()
        for name, call in calls(source.tree)
        if name in UNSAFE_FILES
    ]
    assert found == []


@pytest.mark.parametrize("word", ["pickle", "eval(", "shell=True", "yaml.load", "0.0.0.0"])
def test_nor_is_it_hidden_in_data(word: str) -> None:
    """SQL, the page and everything else of ours that is shipped."""
    ours = [path for path in PACKAGE.rglob("*") if path.is_file() and "vendor" not in path.parts]
    found = [
        path.name for path in ours if path.suffix not in {".py", ".pyc"} and word in path.read_text(encoding="utf-8")
    ]
    assert found == []


@pytest.mark.parametrize("word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "new Function"])
def test_the_page_makes_no_elements_of_text(word: str) -> None:
    """A15: what agents say is text, whatever it contains."""
    page = PACKAGE / "web" / "page"
    own = [path for path in page.rglob("*.js") if "vendor" not in path.parts]
    assert own
    assert [path.name for path in own if word in path.read_text(encoding="utf-8")] == []


def test_the_page_loads_nothing_from_elsewhere() -> None:
    own = [path for path in (PACKAGE / "web" / "page").rglob("*") if path.is_file() and "vendor" not in path.parts]
    named = re.compile(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)
    allowed = {"http://www.w3.org"}  # the name of SVG, which nothing loads
    found = {each for path in own for each in named.findall(path.read_text(encoding="utf-8"))}
    assert found - allowed == set()
