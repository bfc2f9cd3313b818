"""Hints: messages that may be lost, doubled or late without harm.

Because the log has the truth (P1).
"""
