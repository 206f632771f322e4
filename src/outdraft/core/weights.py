"""Facts about a drafter's own weights, for the choice of precision and for counting memory."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How one network is held: who computes it, and how its numbers are rounded."""

    kernels: str  # who computes it: "pytorch", or the native kernels' instruction set
    variant: str  # how it is rounded, by name; "": not at all
    bits: int  # of most of its numbers
    pass_bytes: int  # that one pass reads
    rounded_at_load: bool = False  # the rounding was chosen when it was loaded: the files hold more

    @property
    def can_shrink(self) -> bool:
        """Whether the native kernels could hold it on fewer bits, from the same files."""
        return self.kernels != "pytorch" and (not self.variant or self.rounded_at_load) and self.bits > 4
