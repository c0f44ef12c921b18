"""The tree in the simulator: population, checkers, adversaries, load and soak."""
