"""The parts of `relay_mosquitto.py`: two brokers that carry the same labels for the same members."""
