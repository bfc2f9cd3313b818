"""The grammar of the verbs that move everything: backup, restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from noetl_ray.cli.grammar import verb

if TYPE_CHECKING:
    from noetl_ray.cli.grammar import Verbs


def backup_verbs(verbs: Verbs) -> None:
    """Add the verbs."""
    backup = verb(
        verbs,
        "backup",
        "write what a restore needs into an empty folder; the set may run",
        "noetl-ray backup /mnt/backups/2026-11-18",
    )
    backup.add_argument("folder", type=Path, metavar="DIR", help="made when it is not there")
    backup.add_argument(
        "--objects",
        choices=("copy", "list"),
        help="copy stored objects, or only list them; default: copy those in a local folder, "
        "list those in a store of their own",
    )
    backup.add_argument(
        "--with-keys",
        action="store_true",
        help="put the key of the credentials in too: whoever has the backup can then open them",
    )
    restore = verb(
        verbs,
        "restore",
        "bring a backup back into a set that holds nothing and is down",
        "noetl-ray restore /mnt/backups/2026-11-18",
    )
    restore.add_argument("folder", type=Path, metavar="DIR", help="what `backup` wrote")
    restore.add_argument(
        "--check", action="store_true", help="only compare the backup with its digests"
    )
