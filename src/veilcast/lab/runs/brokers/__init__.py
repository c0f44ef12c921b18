"""Runs of brokers: costs, losses, placement, messages and times."""
