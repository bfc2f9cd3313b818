"""Events: the envelope, the closed set of types, canonical JSON and checksums."""
