"""Who owns a shard of the log, and what its owner starts from."""
