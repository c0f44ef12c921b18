"""Active insiders of a mesh: each wraps an honest node, and tries to make other nodes reveal their role."""
