"""Models of the protocols on arrays, for statistics at sizes that machines cannot reach; tests compare them with the
machines."""
