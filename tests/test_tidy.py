"""The repository checks itself: sizes, docstrings, words out of place, and the map of modules."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
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
each_source = pytest.mark.parametrize("path", SOURCES, ids=name_of)


def is_test(path: Path) -> bool:
    return name_of(path).startswith("tests/")


@each_source
def test_files_are_short(path: Path) -> None:
    limit = TEST_LINES_MAX if is_test(path) else LINES_MAX
    lines = len(path.read_text().splitlines())
    assert lines <= limit, f"{name_of(path)} has {lines} lines, at most {limit}: is it one noun?"


@each_source
def test_functions_are_short(path: Path) -> None:
    long = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                long.append(f"{node.name}: {lines} lines")
    assert not long, f"{name_of(path)}: at most {FUNCTION_LINES_MAX} lines each: {long}"


@each_source
def test_modules_say_what_they_own(path: Path) -> None:
    text = path.read_text()
    if text.strip() and not is_test(path):
        assert ast.get_docstring(ast.parse(text)), f"{name_of(path)} starts without a docstring"


@each_source
def test_nothing_is_left_unfinished(path: Path) -> None:
    text = path.read_text()
    found = UNFINISHED.findall(text)
    assert not found, f"{name_of(path)}: {found}"
    if not is_test(path):
        assert "NotImplemented" + "Error" not in text, name_of(path)


@each_source
def test_only_the_edge_prints(path: Path) -> None:
    if is_test(path) or name_of(path).startswith(MAY_PRINT):
        return
    calls = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert not calls, f"{name_of(path)} prints on lines {calls}"


@each_source
def test_only_config_reads_the_environment(path: Path) -> None:
    if is_test(path) or name_of(path).startswith("noetl_ray/config/"):
        return
    if name_of(path) == "noetl_ray/tools/python_child.py":
        # It is the process of user code: it restores its environment between tasks.
        return
    reads = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in {"environ", "getenv"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
    ]
    assert not reads, f"{name_of(path)} reads os.environ on lines {reads}"


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
        for node in ast.parse(path.read_text()).body:
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
