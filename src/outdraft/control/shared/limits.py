"""Limits of a request: its own number of draft tokens, and the number of tokens that it may still emit.

Data in: a sequence and a depth; data out: a depth.
"""

from outdraft.core.sequence import Sequence


def allowed(seq: Sequence, depth: int) -> int:
    """At most `depth`: a round emits up to depth + 1 tokens, and 0 in the request is plain decoding."""
    wanted = seq.request.most_drafted
    if wanted is not None and wanted < depth:
        depth = wanted
    return max(0, min(depth, seq.room - 1))
