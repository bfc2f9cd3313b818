"""Credentials: named secrets, encrypted at rest, kept out of the log."""
