"""What may be asked of the runtime: register, submit, cancel, run again; each is one append."""

from __future__ import annotations

from noetl_ray.submit.catalog import (
    CatalogEntry,
    PlaybookCache,
    find_playbook,
    load_playbook,
    playbook_text,
    playbook_versions,
    register_playbook,
)
from noetl_ray.submit.control import cancel_execution, pause_execution, resume_execution
from noetl_ray.submit.execution import (
    Submission,
    Submitted,
    choose_playbook,
    kept_workload,
    rerun_execution,
    submit_execution,
    submit_many,
)
from noetl_ray.submit.ports import SubmitPorts

__all__ = [
    "CatalogEntry",
    "PlaybookCache",
    "Submission",
    "SubmitPorts",
    "Submitted",
    "cancel_execution",
    "choose_playbook",
    "find_playbook",
    "kept_workload",
    "load_playbook",
    "pause_execution",
    "playbook_text",
    "playbook_versions",
    "register_playbook",
    "rerun_execution",
    "resume_execution",
    "submit_execution",
    "submit_many",
]
