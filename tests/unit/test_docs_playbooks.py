"""The playbooks on the documentation pages can run, and what the pages name exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from noetl_ray.cli.args import build
from noetl_ray.cli.main import VERBS
from noetl_ray.dsl.parse import check_playbook
from noetl_ray.dsl.problems import Problem

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "examples" / "README.md"]
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TEST_NAME = re.compile(r"`(test_\w+)`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def playbooks() -> list[tuple[str, str]]:
    found = [(page.name, page.read_text()) for page in PAGES]
    blocks = [
        (f"{name}:{text[: match.start()].count(chr(10)) + 2}", match[1])
        for name, text in found
        for match in BLOCK.finditer(text)
        if "apiVersion:" in match[1]
    ]
    files = sorted((ROOT / "examples").glob("*/*.yaml"))
    return blocks + [(path.relative_to(ROOT).as_posix(), path.read_text()) for path in files]


PLAYBOOKS = playbooks()


def test_there_are_playbooks_to_check() -> None:
    assert sum(name.startswith("playbooks.md") for name, _ in PLAYBOOKS) >= 5
    assert sum(name.startswith("examples/") for name, _ in PLAYBOOKS) >= 3


@pytest.mark.parametrize(("name", "text"), PLAYBOOKS, ids=[name for name, _ in PLAYBOOKS])
def test_playbooks_on_the_pages_have_no_findings(name: str, text: str) -> None:
    found: list[Problem] = check_playbook(text, source=name)
    assert not found, [problem.shown(name) for problem in found]


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{page.name} links to {target}#{anchor}"


@each_page
def test_tests_that_are_named_exist(page: Path) -> None:
    named = set(TEST_NAME.findall(page.read_text()))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not {name for name in named if f"def {name}(" not in sources}


def test_the_command_page_shows_every_verb() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert not [verb for verb in VERBS if f"\n### `{verb}`" not in text]


@each_page
def test_commands_on_the_pages_are_understood(page: Path) -> None:
    for line in re.findall(r"^(?:\$ )?noetl-ray (.*)$", page.read_text(), re.MULTILINE):
        build().parse_args(shlex.split(re.sub(r"\bID\b", "123", line), comments=True))


def anchors(path: Path) -> set[str]:
    """Headings as GitHub spells them in links."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in HEADING.findall(path.read_text())
    }
