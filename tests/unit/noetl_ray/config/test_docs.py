"""The configuration page names every setting with its default, and every variable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from noetl_ray.config.checks import check, value_at
from noetl_ray.config.convert import known_keys
from noetl_ray.config.environ import VARIABLES, WITHOUT_SETTING
from noetl_ray.config.load import load_settings
from noetl_ray.config.settings import Settings

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "configuration.md").read_text()
ROWS = {
    cells[0].strip("` "): line
    for line in PAGE.splitlines()
    if line.startswith("| `") and (cells := line.strip("|").split("|"))
}
SPELLED = {"": "empty", "()": "none", "True": "true", "False": "false"}
OTHERWISE = {"runtime.node_id": "the host's name"}


@pytest.mark.parametrize("key", known_keys())
def test_every_setting_has_a_row_with_its_default(key: str) -> None:
    assert key in ROWS, f"docs/configuration.md does not name {key}"
    default = str(value_at(Settings(), key))
    shown = OTHERWISE.get(key, SPELLED.get(default, default))
    assert ROWS[key].split("|")[2].strip().strip("`") == shown


def test_no_row_names_a_setting_that_is_not_there() -> None:
    assert set(ROWS) <= set(known_keys())


@pytest.mark.parametrize(("variable", "key"), sorted(VARIABLES.items()))
def test_every_variable_stands_beside_its_setting(variable: str, key: str) -> None:
    assert f"`{variable}`" in ROWS[key]


def test_refused_variables_are_listed() -> None:
    assert all(f"`{name}`" in PAGE for name in WITHOUT_SETTING)


@pytest.mark.parametrize("page", ["docs/configuration.md", "README.md", "docs/operations.md"])
def test_examples_are_settings(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    settings = [block for block in blocks if "apiVersion" not in block]
    for number, block in enumerate(settings):
        names = set(re.findall(r"\$\{([A-Z0-9_]+)\}", block))
        environ = dict.fromkeys(names, "x" * 8)
        environ |= {"CREDENTIAL_KEY": "A" * 43 + "=", "POSTGRES_DSN": "postgresql://db/noetl"}
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        assert yaml.safe_load(block)
        check(load_settings(file, environ=environ))
    assert settings or page == "docs/operations.md"
