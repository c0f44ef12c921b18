"""Attackers: what was observed in, guesses out. They know the overlay and what is public, and never the truth."""
