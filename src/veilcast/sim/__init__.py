"""A deterministic world that runs any machine by the very bytes it would see on a network.

Follow one frame: a machine hands it over in `engine.Engine`, `links` decides when it arrives (or that it does
not), it waits in the agenda, and the machine at the other end receives it. Everything else stands
beside that path: `faults` changes the weather, the clocks and who is alive, on a script or drawn from the
seed; `checkers` look at what changed; `adversaries` are machines that misbehave; `trace` condenses the run
into one hash and `recording` writes the tables of `veilcast.observe`. `scenario` reads all of it from a TOML
file. `flood` is the smallest machine, and the one to read first.

A run is (commit, scenario, seed). Nothing here reads a clock, draws from a global generator or iterates over
a set.
"""
