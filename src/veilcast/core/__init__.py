"""Parts that machines of several modes are built from: deadlines, calls for streams and what they are for, keys at
hand, what is on the disk, what an owner has subscribed to and the notes that it still lacks.

Like all protocol rooms: no I/O, no clock, no chance of their own.
"""
