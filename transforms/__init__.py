"""Pure functions on records and per-case tables."""
