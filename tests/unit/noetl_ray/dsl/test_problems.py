from __future__ import annotations

from noetl_ray.dsl.model import Place
from noetl_ray.dsl.problems import PROBLEMS_MAX, Findings, Problem, did_you_mean, playbook_error


def test_findings_come_in_the_order_of_the_text() -> None:
    findings = Findings()
    findings.warning(Place(line=3, column=1), "b", "second")
    findings.error(Place(line=1, column=9), "a", "first")
    findings.error(Place(), "c", "no place")
    assert [found.message for found in findings.sorted()] == ["no place", "first", "second"]
    assert findings.sorted()[0].line == 1
    assert findings.failed()


def test_a_warning_is_no_failure() -> None:
    findings = Findings()
    findings.warning(Place(line=3, column=1), "b", "second")
    assert not findings.failed()


def test_hints_stop_when_nobody_will_see_them() -> None:
    findings = Findings()
    assert findings.near("pyton", ["python"]) == "did you mean 'python'?"
    for _ in range(PROBLEMS_MAX + 1):
        findings.error(Place(line=1, column=1), "", "x")
    assert findings.near("pyton", ["python"]) == ""


def test_did_you_mean() -> None:
    assert did_you_mean("strat", ["start", "end"]) == "did you mean 'start'?"
    assert did_you_mean("zzz", ["start", "end"]) == ""
    assert did_you_mean("strat", []) == ""


def test_a_finding_as_line_and_as_data() -> None:
    found = Problem(severity="error", line=2, column=3, path="p", message="bad", hint="fix")
    assert found.shown("f.yaml") == "f.yaml:2:3: bad (fix)"
    assert found.to_dict() == {
        "severity": "error",
        "line": 2,
        "column": 3,
        "path": "p",
        "message": "bad",
        "hint": "fix",
    }
    warning = Problem(severity="warning", line=1, column=1, path="", message="hm")
    error = playbook_error([warning, found], "f.yaml")
    assert error.message == "f.yaml:2:3: bad (fix); 1 more problem"
    assert len(error.problems) == 2
