"""Changes of an overlay at run time, and the key repository.

    deployment         replicas join and leave by the operator's orders
    state_catch_up     a new replica copies the claims that it lacks
    detachment         when a replica that the operator has removed may leave
    placement          how many replicas each node should have
    redeployment_plan  from the brokers' reports to the next orders
    key_repository     a replica of the key repository
    share_store        the key shares of such a replica

Nothing here sends messages or reads a clock.
"""
