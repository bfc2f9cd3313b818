"""What is measured: one question per module, each ending in one line of JSON."""
