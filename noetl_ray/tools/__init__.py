"""Tools: one module per kind of task, and the registry."""
