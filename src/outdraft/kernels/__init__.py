"""Native kernels for CPUs: a decoder's layers over a few rows, reading each weight byte once for all of them.

    native/    C++17, no dependency, built when a compiler is there; one build holds AVX-512, AVX2 and portable code
    library    finds the built file, and says why there is none
    grid       weights as small integers with scales: how they are rounded and stored
    matrix     one packed weight, and the PyTorch reference of its product
    stack      a decoder's packed layers and head
    threads    PyTorch's pool and ours do not work at the same time

Without the built file everything works through PyTorch. Every result for a row is the same bits whatever rows are
computed beside it: sums run in one order.
"""
