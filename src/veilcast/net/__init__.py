"""The network: the only room with asyncio and sockets. It drives machines and knows nothing of what they say.

address     UDP addresses as text
clock       time that never goes back
turns       what every driver does with a machine
udp         drives one machine over UDP
streams     drives one machine over TLS streams: callers, calls, backlog, stream, wrap, records, tls, limits, ends
onions      drives one machine over streams that hide who calls: socks
tor         a Tor of our own, or one that runs already: torcontrol, torprocess, tornet
testnet     a private Tor network on loopback
agent       what a running node offers its clients
protocol    what is said on the control socket
control     the node's side of it
session     the client's side without I/O; `arguments` checks what programs hand in
client      drives a session by asyncio: `veilcast.connect`
blocking    drives a session by a plain socket: `veilcast.connect_sync`
log         logs that name no topic, no peer and no key
metrics     numbers for Prometheus, on loopback
writing     the thread that writes for an owner
owner       the owner of a member's machine, which clients talk to
station     the owner of a machine that has no clients
service     all of them together, from start to the last cell
"""
