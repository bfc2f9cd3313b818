"""What is measured: one question per module, each printing one JSON line last. Nothing imports it."""
