"""Web pages for an owner or a receiver on its own machine: its jobs, approvals, contributions, results,
audits."""
