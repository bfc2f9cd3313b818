"""Results: which tier, deterministic bytes, the extracted block, redaction."""
