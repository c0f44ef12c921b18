"""Models of the protocols on arrays, for statistics at sizes that machines do not reach; pinned to the machines."""
