"""Many requests at once: C clients, each of which asks anew when its last answer is whole (a closed loop).

`jobs` makes the requests, `clients` drives them, `ours` and `over_http` are who answers, `run` interleaves the rounds,
and `row` is the line of the record. Its table is `analysis.load`'s.
"""
