"""The data pipeline: Spark jobs over the whole history. Spark itself is behind a port."""
