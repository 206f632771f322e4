"""Native kernels for CPUs: a decoder's passes that read each weight byte once for all rows, and indices over texts.

    native/         C++17, no dependency, built when a compiler is there; one build holds AMX, AVX-512, AVX2 and
                    portable code
    library.py      the built file, or why there is none; which kernels are wanted, results checked
    index_types.py  the C interface of indices over texts
    built_from.py   opens the built file, if it has the functions and structures that those two declare
    decoder/        weights on few bits, packed weights, products, whole layers, chains of guesses, distributions
    text_index/     suffix arrays, suffix trees and suffix automata
    threads.py      PyTorch's pool and ours do not work at the same time

Without the built file a decoder works through PyTorch and an index through NumPy or plain Python. Every result for a
row is the same bits whatever rows are computed beside it: sums run in one order.
"""
