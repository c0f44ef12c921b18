"""The live network in the lab: real sockets on loopback, in this process or in one for each node."""
