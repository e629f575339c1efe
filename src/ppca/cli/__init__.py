"""The command line: `ppca` and its commands."""
