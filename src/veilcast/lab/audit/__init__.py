"""Audits: what an observer of every wire learns from captures of one's own network."""
