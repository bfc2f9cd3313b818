"""What runs: the roles as plain async classes over ports, and the Ray side that hosts them."""
