"""The write-ahead log: its port, JetStream and memory adapters, and the subjects it is cut into."""
