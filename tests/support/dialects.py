"""What the example of each dialect gives, whatever it is run on."""

from __future__ import annotations

from typing import Any

EXPECTED: dict[str, dict[str, Any]] = {
    "docs": {"pages": {"10": 4, "20": 2}, "amount": 70},
    "python": {"status": "success", "pages": 4, "total": 35, "last": "USER35"},
    "rust": {"name": "Assessment 5", "score": 55, "count": 5, "sum": 265},
}
"""The result of the step ``report`` of ``examples/dialects/<name>.yaml``."""
