"""Generators of fakes: pure functions on arrays of many streams.

`base` is their interface, and `factory` makes them from a member's settings.
"""
