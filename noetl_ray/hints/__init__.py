"""Hints: messages that may be lost, doubled or late without harm, because the log has the truth (P1)."""
