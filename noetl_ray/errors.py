"""The tree of errors this project raises; nothing below lets a driver's own error through.

NoetlError
├── UsageError                 the person or program asking did something wrong
│   ├── ConfigError            a setting is missing or bad (key, value, reason)
│   ├── PlaybookError          a playbook cannot be accepted (file, line, column, path)
│   ├── NotFoundError          the thing named does not exist in this tenant
│   ├── ConflictError          the thing named exists already or is past changing
│   └── TemplateError          a template cannot be compiled or rendered
│       └── NotInlineError     a condition needs what only the tier has
├── LogError                   the write-ahead log
│   ├── VersionConflictError   another writer was first on this subject
│   ├── LogUnavailableError    the log cannot be reached now
│   └── EnvelopeError          an event is incomplete or inconsistent
├── StoreError                 derived or object stores
│   ├── StoreUnavailableError  the store cannot be reached now
│   └── ObjectMissingError     a named object is not where its name says
├── ToolError                  a task of a playbook failed (kind, retryable, details)
└── InternalError              our own bug

Every class carries a stable ``code`` and ``retryable``. Constructor arguments equal ``args``, so
that an error survives pickling through Ray with its fields.
"""

from __future__ import annotations

from typing import Any, ClassVar


class NoetlError(Exception):
    """Base of all errors raised by this project."""

    code: ClassVar[str] = "noetl"
    retryable: bool = False

    @property
    def message(self) -> str:
        """The human sentence, without the class name."""
        return str(self.args[0]) if self.args else self.code

    def __str__(self) -> str:
        """Show the message only; fields stay available as attributes."""
        return self.message


class UsageError(NoetlError):
    """The caller asked for something that cannot be done as asked."""

    code = "usage"


class ConfigError(UsageError):
    """A setting is missing or bad."""

    code = "config"

    def __init__(self, key: str, value: object, reason: str) -> None:
        super().__init__(key, value, reason)
        self.key = key
        self.value = value
        self.reason = reason

    @property
    def message(self) -> str:
        """Key, value and reason in one line."""
        return f"{self.key} = {self.value!r}: {self.reason}"


class PlaybookError(UsageError):
    """A playbook cannot be accepted; ``problems`` lists every finding as a plain mapping."""

    code = "playbook"

    def __init__(self, message: str, problems: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message, problems)
        self.problems: list[dict[str, Any]] = problems or []


class NotFoundError(UsageError):
    """The thing named does not exist for this tenant and organization."""

    code = "not_found"


class ConflictError(UsageError):
    """The thing named exists already, or is in a state that no longer allows this."""

    code = "conflict"


class LogError(NoetlError):
    """The write-ahead log could not do what was asked."""

    code = "log"


class VersionConflictError(LogError):
    """An append stated a version of its subject that the log does not hold."""

    code = "version_conflict"

    def __init__(self, subject: str, expected: int, actual: int | None = None) -> None:
        super().__init__(subject, expected, actual)
        self.subject = subject
        self.expected = expected
        self.actual = actual

    @property
    def message(self) -> str:
        """Which subject, which version."""
        return f"{self.subject}: expected version {self.expected}, the log has {self.actual}"


class LogUnavailableError(LogError):
    """The log cannot be reached, or gave no answer in time."""

    code = "log_unavailable"
    retryable = True


class EnvelopeError(LogError):
    """An event envelope is incomplete or contradicts itself; it is refused before the log."""

    code = "envelope"


class StoreError(NoetlError):
    """A derived or object store could not do what was asked."""

    code = "store"


class StoreUnavailableError(StoreError):
    """A store cannot be reached now."""

    code = "store_unavailable"
    retryable = True


class ObjectMissingError(StoreError):
    """A named object is not at the place its name gives."""

    code = "REFERENCE_NOT_AVAILABLE"
    retryable = True


class ToolError(NoetlError):
    """A task failed. ``kind`` is one of the kinds of dsl section 6.

    ``details`` never holds a secret.
    """

    code = "tool"

    def __init__(
        self,
        message: str,
        kind: str = "unknown",
        retryable: bool = False,
        details: dict[str, Any] | None = None,
        data: Any = None,
    ) -> None:
        super().__init__(message, kind, retryable, details, data)
        self.kind = kind
        self.retryable = retryable
        self.details: dict[str, Any] = details or {}
        self.data = data


class InternalError(NoetlError):
    """Something that must hold did not: a bug of ours."""

    code = "internal"


class TemplateError(UsageError):
    """A template cannot be compiled or rendered; ``template`` is its text, cut short."""

    code = "template"

    def __init__(self, message: str, template: str = "") -> None:
        super().__init__(message, template)
        self.template = template


class NotInlineError(TemplateError):
    """A condition needs a part of a result that lives in the tier; it is refused, never guessed."""

    code = "not_inline"

    def __init__(self, message: str, template: str = "", step: str = "") -> None:
        Exception.__init__(self, message, template, step)
        self.template = template
        self.step = step
        """Whose whole result would answer it; empty when nothing would."""
