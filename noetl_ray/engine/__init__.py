"""The pure middle: state, fold and decide. No clock, no I/O, no randomness."""
