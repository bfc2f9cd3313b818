"""Results: which tier a value goes to, its deterministic bytes, and what the event says of it."""
