"""Falcon's network: an LSTM along the text, and one layer whose rows see each other within a block of k.

    (e(x_1), f_0) (e(x_2), f_1) (e(x_3), f_2)           f: the target's last state behind its norm, e: an embedding
          |             |             |
        LSTM --------> LSTM -------> LSTM               two layers, along the text
          |             |             |
        keys, values of all rows; the last k rows see them, and each other
                        |             |
                     f_3 -> x_4    f_4 -> x_5           row i guesses f_{i+k}, and the target's head the token behind

Gao et al., "Falcon", 2024, https://arxiv.org/abs/2412.12639. There is one layer, so keys and values of a row do not
depend on the block that it is in. D channels; a state is that of both layers of the LSTM, [4, D]: h, c, h, c.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outdraft.drafters.falcon.scan import LstmScan
from outdraft.drafters.shared.blocks.layers import BlockAttention, BlockLayer
from outdraft.drafters.shared.features.learn import begin
from outdraft.drafters.shared.heads.config import StemConfig
from outdraft.drafters.shared.heads.layers import shape_of
from outdraft.drafters.shared.heads.net import HeadNet, Projections
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear
from outdraft.nn.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconConfig(StemConfig):
    """`num_heads`: k, the tokens of a pass. Its layer has the sizes of a stem's, and there is no stem."""


class LstmLayer(nn.Module):
    """Hochreiter and Schmidhuber, "Long short-term memory", 1997, https://doi.org/10.1162/neco.1997.9.8.1735."""

    def __init__(self, num_in: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.input = Linear(num_in, 4 * width, True, dtype, device)  # gates in, forget, out; what comes in
        self.hidden = Linear(width, 4 * width, False, dtype, device)

    def forward(self, x: Tensor, state: Tensor, begins: Tensor) -> Tensor:
        """Rows [n, L, I] behind states [n, 2, D] -> states behind each [n, L, 2, D]. `begins` [n, L]: the text's first
        rows, which have no state before them."""
        (h, c), states, width = state.unbind(1), [], state.shape[-1]
        given = self.input(x.flatten(0, 1)).view(*x.shape[:2], 4 * width)
        if torch.is_grad_enabled() and given.requires_grad:
            parts = (one.to(self.hidden.dtype) for one in (given, self.hidden.weight, h, c, ~begins))
            made: Tensor = LstmScan.apply(*parts)  # type: ignore[no-untyped-call]
            return made
        for own, goes_on in zip(given.unbind(1), (~begins[..., None]).unbind(1), strict=True):
            gates = own + self.hidden(h * goes_on)
            enters, stays, leaves = rowwise(torch.sigmoid, gates[:, : 3 * width]).chunk(3, -1)
            c = stays * c * goes_on + enters * rowwise(torch.tanh, gates[:, 3 * width :])
            h = leaves * rowwise(torch.tanh, c)
            states.append(torch.stack((h, c), 1))
        return torch.stack(states, 1)


class FalconNet(HeadNet):
    """`exact`: no row's bits depend on the rows beside it (inference)."""

    kind, what, sizes = "falcon", "a Falcon network", FalconConfig

    def __init__(
        self, config: FalconConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        width, layers = config.hidden_size, shape_of(config)
        assert layers.rope is not None
        self.exact, self.dtype, self.block = False, dtype, config.num_heads
        self.lstm = nn.ModuleList(LstmLayer(size, width, dtype, self.place) for size in (2 * width, width))
        self.layer = BlockLayer(layers, 0, dtype, self.place)
        self.rope = Rope(layers.rope)
        self.projections = Projections(config, 0, dtype, self.place)
        kv, inner = config.stem_kv_heads * config.stem_head_dim, config.stem_inner
        self.heights = {"kv": [kv] * 2, "up": [inner] * 2, "input": [width] * 4, "hidden": [width] * 4}

    def join(self, embeds: Tensor, f: Tensor) -> Tensor:
        """Embeddings of the next tokens and features [..., D] -> rows [..., 2 D]."""
        return torch.cat((embeds.to(self.dtype), f.to(self.dtype)), -1)

    def along(self, x: Tensor, state: Tensor | None = None, begins: Tensor | None = None) -> Tensor:
        """Rows [n, L, 2 D] behind states [n, 4, D] -> states [n, L, 4, D]. `begins` is as in `LstmLayer`."""
        if state is None:
            state = x.new_zeros(len(x), 4, self.config.hidden_size)
        begins = torch.zeros_like(x[..., 0], dtype=torch.bool) if begins is None else begins
        states = []
        for layer, own in zip(self.lstm, state.chunk(2, 1), strict=True):
            states.append(layer(x, own, begins))
            x = states[-1][:, :, 0]
        return torch.cat(states, 2)

    def keys(self, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """States [N, 4, D] of rows at these positions -> their keys and values [N, Hkv, d] each."""
        x = states[:, 2]
        return self.layer.keys(self.layer.attn_norm(x), self.rope.at(positions, x.dtype))

    def guess(self, states: Tensor, positions: Tensor, ctx: BlockAttention) -> Tensor:
        """States [n, m, 4, D] of texts' last rows, the first at positions [n] -> what the last k guess [n, k, D]."""
        x, size = states[:, :, 2], states.shape[1]
        places = (positions[:, None] + torch.arange(size, device=x.device)).flatten()
        g: Tensor = self.layer(x.flatten(0, 1), self.rope.at(places, x.dtype), ctx, size, self.exact)
        return g.view(x.shape)[:, -self.block :]

    def logits(self, states: Tensor, head: int = 0) -> Tensor:
        """Guessed features [N, D] -> [N, V]."""
        return self.project(states, 0)

    def side_by_side(self, matrix: Tensor) -> int:
        """The LSTM alone reads an embedding and a feature."""
        return 2 if matrix is self.get_parameter("lstm.0.input.weight") else 1

    def begin(self, seed: int) -> None:
        """As other networks on features do."""
        begin(self, seed)
