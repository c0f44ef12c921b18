"""Sealed publications from the publisher to the subscribers, beside their keys.

    sealed_publication  the seal of a publication
    blocks              blocks, manifest, and the strategies by which blocks travel
    publisher           the publisher's side
    publisher_keys      its keys, which are dealt ahead of need
    forwarder, state    content through one broker
    subscriber          the subscriber's side

Nothing here sends messages or reads a clock.
"""
