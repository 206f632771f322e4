"""Mutation testing: small faults are planted in the source, one at a time; do the tests notice? (docs/proof.md)

    mutants   every fault that cosmic-ray's default operators can plant in an area, in a seeded random order
    cover     which test runs which line, and how long it takes
    trial     the tests that run the mutated line, in a forked process, until one fails
    record    one line of JSON a mutant; the score and its interval

`python -m mutation` with tests on the path; needs `pip install -e '.[dev,mutation]'`.
"""
