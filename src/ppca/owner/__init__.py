"""SEES ONE OWNER'S DATA: its table becomes a few exact sums, or rows on a grid, and only shares of these leave the owner."""
