"""Parts that machines of several modes are built from: deadlines, calls for streams, the notes an owner still lacks.

Like all protocol rooms: no I/O, no clock, no chance of their own.
"""
