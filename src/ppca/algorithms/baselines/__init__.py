"""The paper's eigensolvers and sort, corrected, for comparison only; and their costs."""
