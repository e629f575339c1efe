"""How one server of a federation runs one attempt of one job: a process of its own, on the server's one mesh port.
Shares only."""
