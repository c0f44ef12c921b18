"""Foiling (P3): every value goes out among fakes, and only the intended subscribers can tell which is true.

`generators` makes the fakes: `noise` and `categories` are the paper's Scenarios I to III, `dependent` its events of
several attributes; `window`, `trajectory`, `movers` and `moran` repair leaks in them. Generators are pure functions on
arrays of many streams: the live side has few streams, the lab a million.

`member` is the machine that publishes and subscribes through an MQTT broker; its docstring names its parts. The room
does no I/O. It imports the rooms below it and no other mode.
"""
