"""The challenge: a labelled set of observations of all modes and profiles, made again from seeds, and its scorer."""
