"""A deterministic world that runs any machine with the same bytes as on a network.

The path of one frame: a machine hands it over in `engine.Engine`; `links` decides when it arrives, or that it is lost;
it waits in the event queue; the machine at the other end receives it. All else stands beside that path. `faults`
changes the links, the clocks and which machines run, by a script or drawn from the seed. `checkers` look for
violations. `wrappers` is the base of machines that misbehave. `trace` condenses the run into one hash, and `recorder`
writes the tables of `veilcast.observe`. `scenario` reads a whole run from a TOML file.

Each mode has a package with its population, checkers, adversaries and soak. `insiders` are active members of a mesh.
`swap_model` searches all states of the shell game. Read `flood` first: it is the smallest machine, with its population.

A run is (commit, scenario, seed). Nothing here reads a clock, draws from a global generator or iterates over a set.
"""
