"""The brokers in the simulator: population, checkers, Byzantine replicas and soak."""
