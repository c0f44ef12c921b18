"""The runs of experiments, by mode: on models, on the real machines in the simulator, and on real sockets."""
