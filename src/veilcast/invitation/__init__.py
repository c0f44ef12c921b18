"""Invitations: a person joins by a code that is short enough to read out, and no file is carried.

    code        the code: a password, and the place where the two commands meet
    messages    what the two sides say, and the frames that carry it
    channel     the sealed channel under the key that both derive from the password
    inviter     the side that invites: one joiner, one wrong guess, a time limit
    joiner      the side that joins
    rendezvous  where the two meet if neither can call the other

The authority and its keys stay outside: the machines carry a request and its reply as bytes.
"""
