"""Damaged files of every kind that outdraft reads: each is read, or refused by an `OutdraftError`, within two seconds.

`mutate` damages bytes and documents, `stage` makes whole files of every kind, `cases` crosses the two.
"""
