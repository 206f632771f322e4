"""Damaged files of every kind that outdraft reads: each is read, or refused by an `OutdraftError`, within two seconds.

Some change while they are in use, and some are no files at all.

`mutate` damages bytes and documents, `stage` makes whole files of every kind, `cases` crosses the two.
"""
