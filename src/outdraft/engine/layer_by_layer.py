"""A pass of the runner that stops between layers (`core.target.SlicedPass`); its rows wait in between."""

from collections.abc import Callable, Collection, Mapping

from torch import Tensor

from outdraft.core.target import TargetOutput
from outdraft.models.networks.network import Network
from outdraft.nn.context import AttentionContext


class LayerByLayer:
    """`context` is made anew for each slice, because the cache may have moved meanwhile.

    `finish`: from what stands behind the last layer, and the taps, what the pass gives back.
    """

    def __init__(
        self,
        decoder: Network,
        h: Tensor,
        positions: Tensor,
        context: Callable[[], AttentionContext],
        taps: Collection[int],
        finish: Callable[[Tensor, Mapping[int, Tensor]], TargetOutput],
    ) -> None:
        self._decoder, self._context, self._finish = decoder, context, finish
        self._h, self._positions = h, positions
        self._wanted = taps
        self._taken: dict[int, Tensor] = {}
        self._layer = 0

    def run(self, num_layers: int) -> TargetOutput | None:
        """So many layers more."""
        start, last = self._layer, self._decoder.config.num_layers
        self._layer = min(start + num_layers, last)
        out = self._decoder.run(
            self._h, self._positions, self._context(), start=start, stop=self._layer, taps=self._wanted
        )
        self._h = out.hidden
        self._taken |= out.taps
        return None if self._layer < last else self._finish(self._h, self._taken)
