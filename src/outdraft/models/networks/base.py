"""The decoder: embeddings, a stack of blocks, a final norm and a head, over flat ragged rows.

The rows of a pass may belong to many sequences; which row sees which is the attention context's business, so training,
prompt reading, drafting and verification are the same code. A model knows nothing of methods: what a method may need is
a tap (hidden state after i layers), a layer subset, or a resume point.
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import after_attention
from outdraft.models.networks.block import Block, embedding_rows, make_embedding, make_linear, make_norm, tie
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.network import RunOutput
from outdraft.nn.activation import rowwise
from outdraft.nn.context import AttentionContext
from outdraft.nn.invariance import find_tile
from outdraft.nn.linear import LinearMap, RowTile
from outdraft.nn.quant.block_linear import Blocks
from outdraft.nn.quant.linear import QuantLinear
from outdraft.nn.rope import Rope
from outdraft.nn.scores import capped


class Decoder(nn.Module):
    """A `Network` in PyTorch. Parameters are NaN until they are loaded or initialised."""

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        device = torch.device(device)
        self.config = config
        self.embedding = make_embedding(config, dtype, device)
        self.positions: nn.Parameter | None = None
        if config.learned_positions:
            places = (config.max_len, config.hidden_size)
            self.positions = nn.Parameter(torch.full(places, float("nan"), dtype=dtype, device=device))
        self.layers = nn.ModuleList(Block(config, i, dtype, device) for i in range(config.num_layers))
        self.final_norm = make_norm(config, config.hidden_size, dtype, device)
        self.lm_head = make_linear(config, "lm_head", config.hidden_size, config.vocab_size, False, dtype, device)
        if config.tie_embeddings:
            tie(self.lm_head, self.embedding)
        self.ropes = {kind: Rope(kind) for kind in config.rope_kinds()}
        self.exact = False

    @property
    def rope(self) -> Rope | None:
        """How positions turn the heads, where all layers do it alike."""
        return None if self.config.rope is None else self.ropes.get(self.config.rope)

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def kernels(self) -> str:
        return "pytorch"

    @property
    def num_parameters(self) -> int:
        """Tied weights once, quantized ones as what they stand for."""
        quantized = sum(m.num_in * m.num_out for m in self.modules() if isinstance(m, QuantLinear | Blocks))
        return quantized + sum(parameter.numel() for parameter in self.parameters())

    @property
    def pass_bytes(self) -> int:
        held = [*self.layers.parameters(), *self.layers.buffers(), *self.lm_head.parameters(), *self.lm_head.buffers()]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    def set_exact(self, exact: bool) -> None:
        """Prepare for inference; `exact`: no row's bits depend on the rows beside it (bulk rows excepted).

        Packs weights and tries row tilings, for the present weights and number of threads: call it again when
        they change.
        """
        self.exact = exact
        for linear in self.modules():
            if isinstance(linear, LinearMap):
                linear.tile = find_tile(linear) if exact else None
                if linear.tile is None or linear.tile.packed:
                    linear.pack()
                else:
                    linear.unpack()

    def tile_rows(self, rows: int | None) -> None:
        """Compute every product in pieces of so many rows, filled up with zeros: one shape, one order of sums.

        None: a product has as many rows as its pass. Bulk rows are one piece in either case, and packed weights whose
        rows do not depend on each other fill nothing up.
        """
        for linear in self.modules():
            if isinstance(linear, LinearMap):
                linear.tile = None if rows is None else RowTile(most=rows, least=rows, packed=False)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        h = embedding_rows(self.embedding, ids)
        if self.config.embedding_scale != 1:  # rounded first, as Gemma's own code does
            h = h * torch.tensor(self.config.embedding_scale, dtype=h.dtype)
        return h if self.positions is None else h + embedding_rows(self.positions, positions)

    def run(
        self,
        h: Tensor,
        positions: Tensor,
        ctx: AttentionContext,
        *,
        start: int = 0,
        stop: int | None = None,
        skip: Skip = NO_SKIP,
        taps: Collection[int] = (),
    ) -> RunOutput:
        """Layers start..stop, but for what `skip` leaves out, over h [N, D].

        Tap i is the hidden state after layer i - 1, `after_attention(i)` the one in the middle of layer i; taps of
        layers that do not run are absent from the result.
        """
        layers = range(start, self.config.num_layers if stop is None else stop)
        h = h.to(self.embedding.dtype)
        kinds = [self.config.rope_at(i) for i in layers]
        turns = {kind: None if kind is None else self.ropes[kind].at(positions, h.dtype) for kind in set(kinds)}
        taken = {start: h} if start in taps else {}
        for i, kind in zip(layers, kinds, strict=True):
            h, middle = self.layers[i](
                h, turns[kind], ctx, self.exact, attention=i not in skip.attention, mlp=i not in skip.mlp
            )
            if after_attention(i) in taps:
                taken[after_attention(i)] = middle
            if i + 1 in taps:
                taken[i + 1] = h
        return RunOutput(hidden=h, taps=taken)

    def logits(self, h: Tensor) -> Tensor:
        return self.head(self.norm(h))

    def norm(self, h: Tensor) -> Tensor:
        return self.final_norm(h)  # type: ignore[no-any-return]

    def head(self, h: Tensor) -> Tensor:
        logits: Tensor = self.lm_head(h)
        if self.config.logit_scale != 1:
            logits = logits * self.config.logit_scale
        cap = self.config.logit_cap
        if cap is None:
            return logits
        return rowwise(lambda x: capped(x, cap), logits) if self.exact else capped(logits, cap)

    def head_matrix(self) -> Tensor:
        """The head as a matrix [V, D] that says the same logits, its scale included; a cap is no part of a matrix."""
        return self.lm_head.matrix().detach() * self.config.logit_scale

    def head_rows(self, ids: Tensor) -> Tensor:
        """Rows of this matrix: [n] -> [n, D]."""
        return self.lm_head.matrix().detach()[ids] * self.config.logit_scale

    def forward(self, ids: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """ids [N], positions [N] -> logits [N, V]."""
        return self.logits(self.run(self.embed(ids, positions), positions, ctx).hidden)


def initialise(decoder: Decoder, seed: int, std: float = 0.02) -> Decoder:
    """Fresh weights to train from: normal of width `std`, residual branches narrower, norms 1, biases 0."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    narrow = std / (2 * decoder.config.num_layers) ** 0.5
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif parameter.dim() == 1:
                parameter.fill_(1)
            else:
                width = narrow if name.endswith(("out.weight", "down.weight")) else std
                noise = torch.randn(parameter.shape, generator=generator) * width
                parameter.copy_(noise.to(parameter.dtype))
    return decoder
