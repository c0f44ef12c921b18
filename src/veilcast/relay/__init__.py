"""The relay (P2, section 4.1): clients reach, through a proxy that knows who they are, a server that matches.

Neither alone can put the two together. `joining`, `subjects` and `bodies` are the recipes, in both profiles. Without
I/O; imports the rooms below and no other mode.
"""
