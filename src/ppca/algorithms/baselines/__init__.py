"""The paper's eigensolvers and sort, corrected: to compare with, not to recommend. And what each costs, counted."""
