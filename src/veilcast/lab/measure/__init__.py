"""Guesses and truth to metrics: the only place where the two are joined."""
