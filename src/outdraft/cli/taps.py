"""How commands say which of the target's states a draft reads."""

from collections.abc import Sequence as Seq


def taps_line(taps: Seq[int]) -> str:
    """Which states of the target are read, in both ways in which projects count its layers."""
    outputs = [tap - 1 for tap in taps]
    embeddings = "; -1: its embeddings" if -1 in outputs else ""
    return (
        f"reads the target's states after {list(taps)} layers (the outputs of layers {outputs}, counted from "
        f"0{embeddings})"
    )
