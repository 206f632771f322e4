"""Other engines in the same rounds: each in a process of its own, under its own Python, on the same weights.

`__main__` runs `outdraft bench` with them, `spec` says who there is and how to spell one, `process` talks to it,
`weights` gives it the form of the weights that it reads, `entrant` puts it on the clock beside our methods. What runs
over there stands in `workers`.
"""
