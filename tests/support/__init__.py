"""Shared by tests: networks and machines, models, and the rules for all tests."""
