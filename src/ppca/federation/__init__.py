"""Shared by members and servers of a federation: identities, files, signed objects, sealing, the state of a job.

A member (operator of a server, owner, receiver) is a name and a pinned key. Everything that passes between members is
an immutable object, signed by its author and named by its digest. The state of a job follows from its objects alone, so
all members compute the same state. Nothing here sees data or shares.
"""
