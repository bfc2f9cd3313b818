"""Names: noetl:// URIs, the shard function and physical keys. Standard library only (LOC-8)."""
