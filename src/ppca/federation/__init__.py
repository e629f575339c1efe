"""What all members of a federation share: identities, files, signed objects, sealing, the state of a job. No data, no shares.

A member (operator of a server, owner, receiver) is a name and a pinned key. Everything that passes between members is
an immutable
object, signed by its author and named by its digest; where a job stands follows from its objects alone, for everybody alike.
"""
