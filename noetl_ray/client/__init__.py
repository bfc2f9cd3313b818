"""The typed async client of the HTTP API."""

from __future__ import annotations

from noetl_ray.client.client import Client
from noetl_ray.client.values import (
    CredentialSummary,
    Event,
    Execution,
    ExecutionStatus,
    Health,
    LogEntry,
    Registered,
    Request,
    Started,
    StepStatus,
    Validation,
)

__all__ = [
    "Client",
    "CredentialSummary",
    "Event",
    "Execution",
    "ExecutionStatus",
    "Health",
    "LogEntry",
    "Registered",
    "Request",
    "Started",
    "StepStatus",
    "Validation",
]
