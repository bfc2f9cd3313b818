"""The read model: Postgres schema, projection store and queries; always rebuildable."""
