"""The network: the only room with asyncio and sockets. It drives machines and knows nothing of the contents of frames.

Drivers and streams

    driver            the base of all drivers: one machine, moved in turns
    udp               drives a machine over UDP
    streams           drives a machine over TLS streams; the base of the two below
    onion             drives a machine over onion services of Tor
    mqtt              drives a machine that speaks MQTT to a broker
    inbound           accepts streams; `handshake_slots` limits strangers
    outbound          dials peers until they answer
    stream            one stream: handshake, frames, end
    stream_setup      what differs between kinds of streams: frame format, wrapper, peer identity
    records tls socks the frame format of our own streams, and two wrappers
    send_backlog stream_limits close_reasons address clock

Services

    node_service      a member's node: publish, subscribe, notes, status
    service           starts and stops a service with its driver, control socket and metrics; hosts without clients
    transport         the driver, peers and numbers of a service
    group_commit      the thread that writes to the disk
    control           the control socket of a node; `control_protocol` has its messages
    host_queries      the query socket of a host
    private_socket    a unix socket for its owner alone
    client_session    a client's side of the control socket, without I/O
    client            `veilcast.connect`, for asyncio
    sync_client       `veilcast.connect_sync`, without asyncio
    metrics log       Prometheus on loopback; logs without topics, peers and keys

Tor

    tor               a Tor of our own, or one that runs already
    tor_control       its control port
    tor_process       one tor process and its directory; private networks
    tor_testnet       a private Tor network on loopback
"""
