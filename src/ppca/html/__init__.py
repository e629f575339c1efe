"""What pages in a browser share, those of operators and members and the report: the look, the rules of a local page,
amounts."""
