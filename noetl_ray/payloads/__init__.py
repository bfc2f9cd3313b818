"""Objects: durable bytes under derived keys, over fsspec."""
