"""noetl-ray: NoETL playbooks as durable, replayable executions on a Ray cluster."""

__version__ = "0.1.0"
