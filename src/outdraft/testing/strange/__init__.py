"""Strange values for every public argument: all must be taken, or refused by an `OutdraftError`, within two seconds.

`values` has the values, `stage` the tiny models and files that calls need, `places*` every argument of every entry
point, found by reflection, and `cases` crosses the two.
"""
