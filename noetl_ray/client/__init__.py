"""The typed async client of the HTTP API."""

from __future__ import annotations

from noetl_ray.client.client import Client
from noetl_ray.client.values import (
    BusinessObject,
    CredentialSummary,
    Event,
    Execution,
    ExecutionStatus,
    Health,
    LogEntry,
    PlaybookText,
    PlaybookVersion,
    Registered,
    Request,
    Started,
    StepStatus,
    Validation,
)

__all__ = [
    "BusinessObject",
    "Client",
    "CredentialSummary",
    "Event",
    "Execution",
    "ExecutionStatus",
    "Health",
    "LogEntry",
    "PlaybookText",
    "PlaybookVersion",
    "Registered",
    "Request",
    "Started",
    "StepStatus",
    "Validation",
]
