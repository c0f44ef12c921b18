"""Foiling in the simulator: population, checkers, an MQTT broker and soak."""
