"""Methods that train the target itself, so that a drafter without weights of its own guesses more of it.

One file a method, which holds `LEARN`; its drafter is found by name and knows nothing of it. Nothing is trained in
place: each writes low-rank changes, and a changed target beside them (`models/remake/taught.py`).
"""
