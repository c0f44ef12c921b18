"""Runs of foiling: guesses, categories, pairs, pedigrees, overhead and the game."""
