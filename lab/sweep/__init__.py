"""Thousands of small cases that may crash, hang or ask for all memory: each judged in a process that can be lost.

`case` says what a case is and how it may end, `survived` sees what a drafter raised and the engine only logged,
`worker` is the process that runs cases, `run` drives it all from a command line and keeps a journal of what was done.
`lab/strange` and `lab/mutated_files` bring the cases.
"""
