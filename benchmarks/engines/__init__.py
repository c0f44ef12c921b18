"""The lab's attackers over one set of tables, with the reductions made by Spark or by one of its peers."""
