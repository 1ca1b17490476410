"""Stages on Beam and Ray, the store, the planner and the driver."""
