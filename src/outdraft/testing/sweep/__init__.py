"""Thousands of small cases that may crash, hang or ask for all memory: each judged in a process that can be lost.

`case` says what a case is and how it may end, `worker` is the process that runs cases, `journal` remembers what was
done, `run` drives it all from a command line. `testing/strange` and `testing/mutated_files` bring the cases.
"""
