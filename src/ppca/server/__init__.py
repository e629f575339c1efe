"""The daemon of one server of a federation: mailbox, policy, attempts in worker processes, erasure.
Shares only."""
