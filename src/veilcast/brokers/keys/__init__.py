"""The key's way from a publisher to a subscriber, over virtual nodes of which fewer than half lie.

    scheme           how many of how many, by node and version; who the replicas are
    paper            split again at every hop (Algorithm 2, corrected), with signed commitments at every level
    gathering        the subscriber's end of it: discards what does not hold, names who lied
    counts           how many shares and messages that takes
    literal          what the paper tries, prints or leaves open, and what breaks: for experiments
    redistribution   one share for each replica at every hop, however long the way
    receiving        how a replica comes by its share then
    attendance       whose dealings the replicas of a node go on with
    flooding         signed words that all honest replicas of a node end up with alike
    bulk             one shared key for many publications, and what content is sealed with

The steps are functions and small states that brokers run one by one: nothing here sends, waits or knows the time.
"""
