"""Parts that machines of several modes are built from: deadlines, calls for streams, what is on the disk, the notes an
owner still lacks.

Like all protocol rooms: no I/O, no clock, no chance of their own.
"""
