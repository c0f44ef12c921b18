"""Two brokers that carry the same labels for the same members: a relay that knows neither words nor names, and
mosquitto that knows all. For `benchmarks/relay_mosquitto.py`."""
