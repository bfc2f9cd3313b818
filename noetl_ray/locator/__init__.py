"""Names: noetl:// locators, the shard function, physical keys; standard library only (LOC-8)."""
