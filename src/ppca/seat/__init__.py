"""How one seat of a federation runs one attempt of one job: a process of its own, on the seat's one mesh port. Shares only."""
