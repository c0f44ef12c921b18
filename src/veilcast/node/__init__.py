"""The node: a member's machine with a disk, and the hosts, which are machines with a disk and no clients.

    modes                         the table of modes
    mesh relay tree foil brokers  the settings, files and keys of each mode; `broker_overlay` for the brokers' operator
    config toml_file tor_table    the files that owners write
    store member_records          what a member's node stores, and how its machine uses it
    record_store                  what a host stores
    database                      SQLite, sealed: `sealed_slots`, `acknowledged_notes`
    member_view                   what a node can tell its owner
    checked_line multiply_pool

There are no sockets and no clock here: `net` has those.
"""
