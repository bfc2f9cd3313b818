"""The repository checks itself: sizes, docstrings, words out of place, and the map of modules."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

import actors
import noetl_ray
import placement

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("noetl_ray", "actors", "placement")
LINES_MAX = 400
TEST_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
MAY_PRINT = ("noetl_ray/cli/", "bench/", "examples/")

# Put together from parts, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")
HOME = re.compile(r"(?<![\w.:/])/" + r"(?:home|Users|root|work)/[\w.-]+")


def sources() -> list[Path]:
    folders = (*PACKAGES, "bench", "examples", "tests")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


SOURCES = sources()


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All of a module's syntax, parsed once for all tests."""
    return list(ast.walk(ast.parse(text_of(path))))


def is_test(path: Path) -> bool:
    return name_of(path).startswith("tests/")


# One case per check and not per file: thousands of cases cost more than all that they look at. Each
# names every file it does not like.


def test_files_are_short() -> None:
    long = []
    for path in SOURCES:
        limit = TEST_LINES_MAX if is_test(path) else LINES_MAX
        lines = len(text_of(path).splitlines())
        if lines > limit:
            long.append(f"{name_of(path)} has {lines} lines, at most {limit}: is it one noun?")
    assert not long


def test_functions_are_short() -> None:
    long = []
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{name_of(path)}: {node.name}: {lines} lines")
    assert not long, f"at most {FUNCTION_LINES_MAX} lines each: {long}"


def test_modules_say_what_they_own() -> None:
    silent = []
    for path in SOURCES:
        module = nodes_of(path)[0]
        assert isinstance(module, ast.Module)
        if text_of(path).strip() and not is_test(path) and not ast.get_docstring(module):
            silent.append(name_of(path))
    assert not silent, f"these start without a docstring: {silent}"


def test_nothing_is_left_unfinished() -> None:
    left = []
    for path in SOURCES:
        found = UNFINISHED.findall(text_of(path))
        if not is_test(path):
            found += re.findall("NotImplemented" + "Error", text_of(path))
        if found:
            left.append(f"{name_of(path)}: {found}")
    assert not left


def test_only_the_edge_prints() -> None:
    calls = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if not is_test(path) and not name_of(path).startswith(MAY_PRINT)
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert not calls, f"these print: {calls}"


def test_only_config_reads_the_environment() -> None:
    # The process of user code restores its environment between tasks.
    may = ("noetl_ray/config/", "noetl_ray/tools/python_child.py")
    reads = [
        f"{name_of(path)}:{node.lineno}"
        for path in SOURCES
        if not is_test(path) and not name_of(path).startswith(may)
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "getenv"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    assert not reads, f"these read os.environ: {reads}"


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, timeout=30
    )
    names = listed.stdout.decode().split("\0") if listed.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or SOURCES
    return [path for path in paths if path.is_file() and path.stat().st_size < 1_000_000]


def test_no_path_of_one_machine() -> None:
    # Folders everybody has are nobody's: a clone may well lie below one of them.
    shared = {Path("/"), Path("/tmp"), Path("/home"), Path("/var/tmp")}
    here = [f"{folder}/" for folder in (ROOT.parent, Path.home()) if folder not in shared]
    found = []
    for path in tracked():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, start=1):
            # A test may name a home that belongs to nobody.
            suspect = not is_test(path) and HOME.search(line)
            if suspect or any(part in line for part in here):
                found.append(f"{name_of(path)}:{number}: {line.strip()}")
    assert not found


def test_every_module_is_on_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    missing = []
    for path in SOURCES:
        name = name_of(path)
        if not name.startswith(tuple(f"{package}/" for package in PACKAGES)):
            continue
        if path.name in {"__init__.py", "__main__.py"}:
            continue
        parent = re.escape(path.parent.name)
        if not re.search(rf"(?<!\w){parent}[/.]{re.escape(path.stem)}(?!\w)", text):
            missing.append(name)
    assert not missing, f"docs/architecture.md does not name: {missing}"


@pytest.mark.parametrize("package", [noetl_ray, actors, placement])
def test_packages_come_from_this_tree(package: object) -> None:
    file = str(getattr(package, "__file__", ""))
    assert Path(file).resolve().is_relative_to(ROOT), file


def test_every_public_list_is_sorted() -> None:
    for path in SOURCES:
        for node in ast.parse(text_of(path)).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = ast.literal_eval(node.value)
                assert list(names) == sorted(names), name_of(path)


def test_direct_dependencies_are_exact_and_in_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = {
        line.split("==")[0].lower().replace("_", "-"): line.split("==")[1]
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if "==" in line
    }
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    for line in wanted:
        name, _, version = line.split(";")[0].strip().partition("==")
        name = name.split("[")[0].lower().replace("_", "-")
        assert lock.get(name) == version, line


def test_the_changelog_has_a_place_for_the_next_release() -> None:
    assert "\n## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text()
