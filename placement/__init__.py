"""Where work should run: pure functions over topology, distance and load."""
