"""The attackers of the lab over one set of tables, by several engines: Spark and its peers."""
