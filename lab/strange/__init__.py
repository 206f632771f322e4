"""Strange values for every argument of what users call: taken, or refused by an `OutdraftError`, within two seconds.

`values` has the values, `stage` the tiny models and files that calls need, `*_arguments` the arguments of the engine,
the plug-ins, the commands and the tools beside them, mostly found by reflection, and `cases` crosses the two. Training
and `tutorial` are not among them.
"""
