"""Locations of stored files, and logs that decide between their writers."""
