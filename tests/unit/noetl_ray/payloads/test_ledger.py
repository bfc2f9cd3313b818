"""The books of shared memory: budget, leases, loans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noetl_ray.payloads.ledger import Ledger


def books(budget=100):
    return Ledger(budget, lease_s=10, grace_s=5)


def test_cch_4_what_does_not_fit_is_refused_at_once():
    ledger = books()
    assert ledger.admit("a", 101, 0.0) == (False, [])
    assert ledger.counts["exhausted"] == 1
    assert ledger.used_bytes(0.0) == 0


def test_cch_4_a_budget_of_nothing_admits_nothing():
    assert books(0).admit("a", 1, 0.0) == (False, [])


def test_the_least_recently_used_leaves_first():
    ledger = books()
    for name in ("a", "b"):
        assert ledger.admit(name, 50, 0.0)[0]
    assert ledger.lend("a", 0.0)
    assert ledger.admit("c", 50, 11.0) == (True, ["b"])
    assert "a" in ledger


def test_p29_what_is_lent_counts_until_the_loan_ends():
    ledger = books()
    assert ledger.admit("a", 80, 0.0)[0]
    assert ledger.lend("a", 14.0)
    assert ledger.expire(15.0) == ["a"]
    assert ledger.used_bytes(15.0) == 80
    assert not ledger.admit("b", 50, 15.0)[0]
    assert ledger.used_bytes(24.1) == 0
    assert ledger.admit("b", 50, 24.1)[0]


def test_p29_lent_entries_are_not_pushed_out():
    ledger = books()
    assert ledger.admit("a", 80, 0.0)[0]
    assert ledger.lend("a", 0.0)
    assert ledger.admit("b", 50, 1.0) == (False, [])
    assert "a" in ledger


def test_cch_5_an_entry_lives_for_lease_and_grace():
    ledger = books()
    assert ledger.admit("a", 10, 0.0)[0]
    assert ledger.lend("a", 14.9)
    assert not ledger.lend("a", 15.0)
    assert ledger.expire(15.0) == ["a"]
    assert not ledger.lend("a", 15.1)
    assert (ledger.counts["hits"], ledger.counts["misses"]) == (1, 2)


def test_offering_again_renews():
    ledger = books()
    assert ledger.admit("a", 10, 0.0)[0]
    assert ledger.admit("a", 10, 9.0)[0]
    assert ledger.lend("a", 20.0)
    assert ledger.used_bytes(20.0) == 10


def test_an_admission_that_came_to_nothing_frees_its_bytes():
    ledger = books()
    assert ledger.admit("a", 100, 0.0)[0]
    ledger.forget("a")
    assert ledger.used_bytes(0.0) == 0


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 60), st.booleans())))
def test_the_budget_is_never_passed(steps):
    ledger = books()
    for now, (name, size, lend) in enumerate(steps):
        if lend:
            ledger.lend(name, float(now))
        else:
            ledger.admit(name, size, float(now))
        assert ledger.used_bytes(float(now)) <= 100
