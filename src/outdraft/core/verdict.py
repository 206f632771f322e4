"""A rule's decision about one draft: the accepted path, and exactly one more token."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """`len(path) + 1` tokens are emitted, so every round emits at least one."""

    path: tuple[int, ...]  # accepted nodes from the root's child downwards; empty if none
    token: int  # the extra token
    bonus: bool  # True: the path ran to a leaf (bonus); False: every child was rejected (recovered)
