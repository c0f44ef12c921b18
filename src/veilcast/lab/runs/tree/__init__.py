"""Runs of spanning trees: costs, attacks, definitions of anonymity, droppers and delays."""
