"""Servers started from wheels: NATS and Postgres, for one-command use."""
