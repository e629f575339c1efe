"""`ppca bench reproduce`: every table and figure of the paper's evaluation, and the peers, each by one command."""
