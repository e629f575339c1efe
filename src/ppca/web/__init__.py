"""Local web pages for owners and receivers: report.html and the pages of `ppca ui`. They SEE ROWS AND RESULTS of their
user."""
