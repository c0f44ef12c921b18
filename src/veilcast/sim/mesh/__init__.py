"""The mesh in the simulator: population, checkers, adversaries and soak."""
