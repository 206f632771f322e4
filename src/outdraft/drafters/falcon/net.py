"""Falcon's network: an LSTM along the text, and one layer whose rows see each other within a block of k.

    (e(x_1), f_0) (e(x_2), f_1) (e(x_3), f_2)           f: the target's last state behind its norm, e: its embedding
          |             |             |
        LSTM --------> LSTM -------> LSTM               two layers, along the text
          |             |             |
        keys, values of all rows; the last k rows see them, and each other
                        |             |
                     f_3 -> x_4    f_4 -> x_5           row i guesses f_{i+k}, and the target's head the token behind

Gao et al., "Falcon: faster and parallel inference of large language models through enhanced semi-autoregressive
drafting and custom-designed decoding tree", 2024, https://arxiv.org/abs/2412.12639. There is one layer, so keys and
values of a row do not depend on the block that it is in. N rows, D channels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.blocks.layers import BlockAttention, BlockLayer
from outdraft.drafters.shared.features.learn import begin
from outdraft.drafters.shared.heads.config import StemConfig
from outdraft.drafters.shared.heads.layers import shape_of
from outdraft.drafters.shared.heads.net import HeadNet, Projections
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear
from outdraft.nn.rope import Rope

DEPTH = 2  # layers of the LSTM


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconConfig(StemConfig):
    """`num_heads`: k, the tokens that a pass guesses. The sizes of its layer are named as those of a stem, of which
    there is none."""


class LstmLayer(nn.Module):
    """Hochreiter and Schmidhuber, "Long short-term memory", 1997, https://doi.org/10.1162/neco.1997.9.8.1735."""

    def __init__(self, num_in: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.input = Linear(
            num_in, 4 * width, True, dtype, device
        )  # of the gates in, forget, out, and of what comes in
        self.hidden = Linear(width, 4 * width, False, dtype, device)

    def forward(self, x: Tensor, state: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor]:
        """x [n, L, I] behind states [n, 2, D] -> outputs [n, L, D], the states behind each [n, L, 2, D].

        begins [n, L]: where a text begins, of which no state is known; None: nowhere.
        """
        given = self.input(x.flatten(0, 1)).view(*x.shape[:2], 4 * state.shape[-1])  # [n, L, 4 D]
        (h, c), states = state.unbind(1), []
        for place in range(x.shape[1]):
            if begins is not None:
                goes_on = ~begins[:, place, None]
                h, c = h * goes_on, c * goes_on
            gates = given[:, place] + self.hidden(h)
            width = h.shape[-1]
            enters, stays, leaves = rowwise(torch.sigmoid, gates[:, : 3 * width]).chunk(3, -1)
            c = stays * c + enters * rowwise(torch.tanh, gates[:, 3 * width :])
            h = leaves * rowwise(torch.tanh, c)
            states.append(torch.stack((h, c), 1))
        made = torch.stack(states, 1)
        return made[:, :, 0], made


class FalconNet(HeadNet):
    """`exact`: no row's bits depend on the rows beside it (inference)."""

    kind, what, sizes = "falcon", "a Falcon network", FalconConfig

    def __init__(
        self, config: FalconConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        width, layers = config.hidden_size, shape_of(config)
        assert layers.rope is not None
        self.exact, self.dtype = False, dtype
        self.lstm = nn.ModuleList(LstmLayer(width if i else 2 * width, width, dtype, self.place) for i in range(DEPTH))
        self.layer = BlockLayer(layers, 0, dtype, self.place)
        self.rope = Rope(layers.rope)
        self.projections = Projections(config, 0, dtype, self.place)
        kv, inner = config.stem_kv_heads * config.stem_head_dim, config.stem_inner
        self.heights = {"kv": [kv] * 2, "up": [inner] * 2, "input": [width] * 4, "hidden": [width] * 4}

    def along(
        self, embeds: Tensor, f: Tensor, state: Tensor | None = None, begins: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Embeddings and features [n, L, D] behind states [n, 2 * DEPTH, D] -> as an `LstmLayer`, of all layers."""
        x = torch.cat((embeds.to(self.dtype), f.to(self.dtype)), -1)
        if state is None:
            state = x.new_zeros(len(x), 2 * DEPTH, self.config.hidden_size)
        states = []
        for layer, own in zip(self.lstm, state.chunk(DEPTH, 1), strict=True):
            x, made = layer(x, own, begins)
            states.append(made)
        return x, torch.cat(states, 2)

    def keys(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The LSTM's outputs [N, D] at these positions -> keys and values [N, Hkv, d] each."""
        return self.layer.keys(self.layer.attn_norm(x), self.rope.at(positions, x.dtype))

    def guess(self, rows: Tensor, positions: Tensor, ctx: BlockAttention) -> Tensor:
        """The LSTM's outputs [n, m, D] of the last rows of texts; the first stand at positions [n] -> the features that
        the last k of them guess [n, k, D]."""
        n, m, width = rows.shape
        places = (positions[:, None] + torch.arange(m, device=rows.device)).flatten()
        g: Tensor = self.layer(rows.flatten(0, 1), self.rope.at(places, rows.dtype), ctx, self.exact)
        return g.view(n, m, width)[:, -self.config.num_heads :]

    def side_by_side(self, matrix: Tensor) -> int:
        """The LSTM alone reads an embedding and a feature."""
        return 2 if matrix is self.lstm[0].input.weight else 1

    def begin(self, seed: int) -> None:
        """As other networks on features do."""
        begin(self, seed)
