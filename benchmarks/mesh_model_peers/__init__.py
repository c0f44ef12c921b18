"""Models and sweeps of the mesh beside straightforward implementations."""
