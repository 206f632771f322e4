"""The conformance matrix: every recipe that ships against six assertions, on tiny targets; the page is its record.

python -m lab.conformance          writes docs/conformance.md, says what fails, exits 1 if anything did
"""
