"""Alignment of records that several owners hold different columns of: by order, by a small public range, or by PSI.

What servers do with tags is in `ppca.jobs.matching`.
"""
