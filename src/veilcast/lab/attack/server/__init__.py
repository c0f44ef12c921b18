"""Attackers at a relay: its server, its proxy, and observers of its clients' wires."""
