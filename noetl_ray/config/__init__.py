"""Settings: one frozen object, loaded once from YAML and the environment."""
