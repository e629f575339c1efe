"""Alignment of the rows of column owners: by order, by a small public range of ids, or by private set intersection
(PSI).

Servers match tags with `ppca.jobs.matching`.
"""
