"""What may stand before a guesser's layers (`Entrance`) and behind them (`ResidualBlock`)."""

from dataclasses import dataclass
from enum import Enum

from torch import Tensor

from outdraft.kernels.declared import CEntrance, CLinear
from outdraft.kernels.decoder.matrix import Packable
from outdraft.kernels.library import pointer


class FirstState(Enum):
    """What the layers' state begins with."""

    ZERO = 0
    FEATURE = 1
    NORMED_FEATURE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """What the layers start from, of an embedding e and a feature f. A norm that is None changes nothing.

    f         fusion [norm(t0) | norm(t1) ...] of the taps; without a fusion the one tap there is, normed
    join      state = origin + join [norm(e) | norm(f)]
    no join   state = origin, and the first layer's attention reads [norm(e) | norm(f)] in place of its normed state
    """

    num_taps: int
    tap_width: int
    fusion: Packable | None = None  # [D, taps * Dt]
    join: Packable | None = None  # [D, 2 * D]
    tap_norms: Tensor | None = None  # [taps, Dt] float32
    one_tap_norm: bool = False  # it is over all taps side by side, not over each
    tap_eps: float = 0.0
    token_norm: Tensor | None = None  # [D] float32
    feature_norm: Tensor | None = None  # [D] float32
    origin: FirstState = FirstState.FEATURE
    norms_carried: bool = False  # a state that stands in for a feature goes through the guesser's own norm first

    def describe(self) -> CEntrance:
        """The same for the C interface: pointers into these tensors, which must outlive it."""
        fusion, join = (CLinear() if one is None else one.describe() for one in (self.fusion, self.join))
        norms = [pointer(norm) for norm in (self.tap_norms, self.token_norm, self.feature_norm)]
        return CEntrance(
            fusion,
            join,
            *norms,
            self.num_taps,
            self.tap_width,
            self.one_tap_norm,
            self.origin.value,
            self.norms_carried,
            self.tap_eps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualBlock:
    """State h -> h + down silu(up norm(h))."""

    up: Packable
    down: Packable
    norm: Tensor  # [D] float32
