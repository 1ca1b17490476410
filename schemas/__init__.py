"""Shared definitions: Arrow table schemas, run configuration, ids and fingerprints, error types."""
