"""The parts that machines of several modes are built from.

    host                 bases of the machines of members and hosts: refusals, faults, frames; a host also has records
    member               base of the machine of a member: publish, subscribe
    outbox               publications that are not settled, kept over restarts; what is on its way for each of them
    inbox                notifications that the client has not acknowledged
    subscriptions        the subscriptions of the client, by interest
    durable_records      records that the driver writes to its disk, and what waits for them
    timers               many deadlines of one machine, and the next of them
    connector            asks the driver for streams to peers, with growing pauses
    rate_limit           token buckets, one or several for each peer
    bounded              maps, sets and quotas with a bound
    stream_purpose       the purpose of a stream in the name of its peer
    member_topics        the topics that a keyring has keys for, by epoch
    publication          a publication, sealed and signed
    sealed_notification  a publication sealed from end to end
    match_elements       interests and publications as groups of elements
    size_classes         groups of elements padded to a few sizes
    settings             checks of configuration fields

Like all protocol rooms, this one has no I/O, no clock and no randomness of its own.
"""
