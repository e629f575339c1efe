"""Alignment of records that several owners hold different columns of: by order, by a small public range, or by PSI.

ids          what an id is: normalisation to bytes, and the errors
tags         keyed pseudonyms of ids, at native speed
agreement    how owners agree on the key of the tags, which servers never see
arrangement  what an owner does with its rows before it sends them
matching     what servers do with tags: the rows that every owner has
"""
