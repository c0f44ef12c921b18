"""Claims (advertisements and subscriptions), and where publications go by them.

    claims                     what a claim contains, and how a broker checks it
    covering                   which interest covers which, and which advertisement overlaps a subscription
    claim_semantics            the two encodings of predicates, and when claims cover, overlap or match
    tables                     the routing tables of one broker
    votes                      claims that are not believed yet
    router                     the claims that one replica believes and forwards
    view                       what the forwarders of keys and content ask of the router
    renewal                    a client's own claims, from period to period
    subscriber_advertisements  the advertisements that a subscriber knows

Nothing here sends messages or reads a clock.
"""
