"""The typed async client of the HTTP API."""
