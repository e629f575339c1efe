"""The paper's eigensolvers, corrected, for comparison only."""
