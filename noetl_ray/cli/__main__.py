"""``python -m noetl_ray.cli``: the same as the ``noetl-ray`` command."""

from __future__ import annotations

import sys

from noetl_ray.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
