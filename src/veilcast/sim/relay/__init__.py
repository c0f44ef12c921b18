"""The relay in the simulator: population and soak."""
