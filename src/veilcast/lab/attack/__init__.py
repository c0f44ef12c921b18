"""Attackers: observations in, scores or guesses out. No attacker can read the truth."""
