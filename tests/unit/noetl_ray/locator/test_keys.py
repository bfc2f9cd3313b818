"""Physical keys are derivable anywhere, invertible, and stay below their root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.errors import UsageError
from noetl_ray.locator.keys import (
    Placement,
    cursor_key,
    mint_date,
    parse_key,
    payload_key,
    result_key,
)
from noetl_ray.locator.result import ResultName
from noetl_ray.scope import Scope

PLACEMENT = Placement(env="prod", region="eu", cell="cell-7")
NAME = ResultName(
    tenant="acme", project="billing", execution_id=241234567890123456, step="load", row=3
)
KEY = (
    "noetl/env=prod/region=eu/cell=cell-7/shard=4/tenant=acme/project=billing/date=2025-10-27"
    "/execution=241234567890123456/results/load/v1.f0/3/1.feather"
)
NASTY = st.text(min_size=1, max_size=12) | st.sampled_from(
    [".", "..", "../..", "/", "/etc/passwd", "a/../b", "\\", "~", "a\x00b", "C:", "%2e%2e", "="]
)
NUMBERS = st.integers(0, (1 << 63) - 1)


def test_loc_4_key_of_a_result():
    assert result_key(PLACEMENT, NAME, "feather") == KEY


def test_loc_4_two_processes_derive_the_same_key():
    code = (
        "from noetl_ray.locator.keys import Placement, result_key\n"
        "from noetl_ray.locator.result import ResultName\n"
        "name = ResultName(tenant='acme', project='billing', execution_id=241234567890123456,"
        " step='load', row=3)\n"
        "print(result_key(Placement(env='prod', region='eu', cell='cell-7'), name, 'feather'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == KEY


def test_tn_21_date_is_the_day_the_execution_was_minted():
    # 2024-01-01T00:00Z is the epoch of ids; the last millisecond of that day is still that day.
    day_ms = 86_400_000
    assert mint_date(0) == "2024-01-01"
    assert mint_date((day_ms - 1) << 22) == "2024-01-01"
    assert mint_date(day_ms << 22) == "2024-01-02"


def test_loc_1_two_rows_of_one_step_have_two_keys():
    other = ResultName(
        tenant="acme", project="billing", execution_id=241234567890123456, step="load", row=4
    )
    assert result_key(PLACEMENT, other, "feather") != KEY


def test_loc_2_a_bumped_version_stands_beside_the_first():
    keys = {
        result_key(
            PLACEMENT,
            ResultName(tenant="t", project="p", execution_id=1, step="s", version=version),
            "json",
        )
        for version in (0, 1, 2)
    }
    assert len(keys) == 3


@given(NASTY, NASTY, NASTY, NASTY, NASTY, NASTY, NASTY, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_loc_8_every_key_stays_below_its_root_and_reads_back(
    env, region, cell, tenant, project, step, frame, execution_id, row, attempt, version
):
    placement = Placement(env=env, region=region, cell=cell)
    name = ResultName(
        tenant=f"x{tenant}",
        project=project,
        execution_id=execution_id,
        step=step,
        frame=frame,
        row=row,
        attempt=attempt,
        version=version,
    )
    key = result_key(placement, name, "json")
    assert_safe(key)
    found = parse_key(key)
    assert found.name == name
    assert (found.env, found.region, found.cell, found.ext) == (env, region, cell, "json")


@given(NASTY, NASTY)
def test_other_keys_stay_below_their_root(env, consumer):
    placement = Placement(env=env)
    assert_safe(cursor_key(placement, consumer))
    assert_safe(payload_key(placement, Scope(), "0a" * 32))


@given(NASTY)
def test_a_bad_extension_or_digest_is_refused(text):
    if not text.isalnum() or not text.isascii() or not text.islower():
        with pytest.raises(UsageError):
            result_key(PLACEMENT, NAME, text)
    with pytest.raises(UsageError):
        payload_key(PLACEMENT, Scope(), text)


def test_pay_4_payload_key_fans_out_by_digest():
    sha = "abcd" + "0" * 60
    scope = Scope(tenant_id="acme", organization_id="ops")
    assert payload_key(PLACEMENT, scope, sha) == (
        f"noetl/env=prod/tenant=acme/org=ops/payloads/sha256/ab/cd/{sha}"
    )


@pytest.mark.parametrize(
    "key",
    [
        "",
        "noetl",
        KEY + "/x",
        "/" + KEY,
        KEY.replace("date=2025-10-27", "date=2025-10-28"),
        KEY.replace("region=eu", "zone=eu"),
        KEY.replace("/3/", "/03/"),
        KEY.replace("1.feather", "1"),
        KEY.replace("1.feather", "1@1.feather"),
        KEY.replace("load", ".."),
        KEY.replace("results", "payloads"),
    ],
)
def test_loc_8_what_is_no_result_key_is_refused(key):
    with pytest.raises(UsageError):
        parse_key(key)


def test_loc_8_locator_needs_the_standard_library_only():
    code = (
        "import sys\n"
        "import noetl_ray.locator.keys, noetl_ray.locator.resource, noetl_ray.locator.result\n"
        "bad = {'pyarrow', 'msgspec', 'fsspec', 'nats', 'asyncpg', 'ray'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], timeout=30, check=True)


def assert_safe(key):
    path = PurePosixPath(key)
    assert not path.is_absolute()
    assert path.parts[0] == "noetl"
    assert str(path) == key
    assert not {".", ".."} & set(key.split("/"))
    assert key.isprintable()
