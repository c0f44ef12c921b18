"""Time and memory of a piece of work on a shared machine."""
