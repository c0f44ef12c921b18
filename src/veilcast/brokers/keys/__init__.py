"""The transfer of a key from a publisher to a subscriber, over virtual nodes in which fewer than half of the replicas
are Byzantine.

    scheme                 thresholds by node and version, and the replicas' keys
    paper_split            `paper`: split again at every hop (Algorithm 2, corrected), with signed commitments per level
    share_counts           how many shares and messages a transfer takes; only the lab and tests use it
    redistribution         `hardened`: one share per replica at every hop, however long the path
    agreement              signed broadcast in a node, and the rules by which its replicas choose the same dealings
    share_reception        how a replica gets its share: the steps, without time
    transfer_receiver      the same with its timers
    transfer_sender        the holder's side of a hop
    unresponsive_replicas  replicas that are not waited for
    forwarder_base         keys through one broker: what the profiles `hardened_forwarder` and `paper_forwarder` share
    reassembly             the subscriber's end
    bulk_key               one shared key for many publications
"""
