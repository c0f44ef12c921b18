"""How fast the lab is: kernels and sweeps beside the same written the obvious way, in one run of one machine."""
