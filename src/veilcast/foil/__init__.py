"""Foiling (P3): every value goes out among fakes, in the open, and only who is meant to can tell which it is.

`generator` is what all makers of fakes have in common: `noise`, `entropy` and `bucketing` are the paper's Scenarios I
to III, `dependent` its events of several attributes; `window`, `trajectory`, `signflip` and `moran` repair what gives
the truth away in them. Pure arrays over many streams at once: the live side has few, the lab a million.

`member` is the machine that publishes and reads through a broker of MQTT, and its docstring names its parts. Without
I/O; imports the rooms below and no other mode.
"""
