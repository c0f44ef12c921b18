"""A model checker of the swap: it visits every state that swaps played at once can reach."""
