"""The read model: what can be asked quickly. Rows of projections, never a source of truth (P1)."""
