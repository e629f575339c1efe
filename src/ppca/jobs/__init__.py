"""Description of a job, everything that it opens, and the programs that servers run on shares."""
