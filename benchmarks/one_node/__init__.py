"""The parts of `mesh_messages.py`: a node on a bench, and what it is given to do."""
