"""Members that do more than watch: each wraps an honest node, and has one way to make others show what they are."""
