"""What an owner or a receiver sees in a browser on its own machine: its jobs, approvals, contributions, results,
audits."""
