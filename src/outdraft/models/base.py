"""The decoder: embeddings, a stack of blocks, a final norm and a head, over flat ragged rows.

The rows of a pass may belong to many sequences; which row sees which is the attention context's business, so training,
prompt reading, drafting and verification are the same code. A model knows nothing of methods: what a method may need is
a tap (hidden state after i layers), a layer subset, or a resume point.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from outdraft.kernels.stack import Span, Stack
from outdraft.models.block import Block, embedding_rows, make_linear, make_norm
from outdraft.models.config import ModelConfig
from outdraft.models.native import can_pack, pack_stack
from outdraft.nn.context import AttentionContext
from outdraft.nn.invariance import find_tile
from outdraft.nn.linear import Linear, LinearMap
from outdraft.nn.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """Hidden states after the layers that ran."""

    hidden: Tensor  # [N, D] before the final norm
    taps: dict[int, Tensor] = field(default_factory=dict)  # after i layers -> [N, D]; 0 = the embeddings


class Decoder(nn.Module):
    """A causal language model. Parameters are NaN until they are loaded or initialised."""

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        device = torch.device(device)
        self.config = config
        table = (config.vocab_size, config.hidden_size)
        self.embedding = nn.Parameter(torch.full(table, float("nan"), dtype=dtype, device=device))
        self.positions: nn.Parameter | None = None
        if config.learned_positions:
            places = (config.max_len, config.hidden_size)
            self.positions = nn.Parameter(torch.full(places, float("nan"), dtype=dtype, device=device))
        self.layers = nn.ModuleList(Block(config, i, dtype, device) for i in range(config.num_layers))
        self.final_norm = make_norm(config, config.hidden_size, dtype, device)
        self.lm_head = make_linear(config, "lm_head", config.hidden_size, config.vocab_size, False, dtype, device)
        if config.tie_embeddings and isinstance(self.lm_head, Linear):
            self.lm_head.weight = self.embedding
        self.rope = Rope(config.rope) if config.rope is not None else None
        self.exact = False
        self.stack: Stack | None = None  # the layers in native form, after `accelerate`

    def accelerate(self) -> bool:
        """Use the native kernels from now on where they know this decoder; returns whether they do.

        Packs the present weights for PyTorch's present number of threads: call it again when they change. Rows are
        independent of each other there whatever `exact` says.
        """
        self.stack = None
        if can_pack(self.config, self.embedding.dtype, self.embedding.device):
            layers = [layer for layer in self.layers if isinstance(layer, Block)]
            self.stack = pack_stack(self.config, layers, self.final_norm, self.lm_head)
        return self.stack is not None

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

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [N], positions [N] -> [N, D]."""
        h = embedding_rows(self.embedding, ids)
        if self.stack is not None:
            return h.float()
        return h if self.positions is None else h + embedding_rows(self.positions, positions)

    def run(
        self,
        h: Tensor,
        positions: Tensor,
        ctx: AttentionContext,
        *,
        start: int = 0,
        stop: int | None = None,
        layers: Sequence[int] | None = None,
        taps: Collection[int] = (),
    ) -> RunOutput:
        """Layers start..stop, or exactly `layers`, over h [N, D].

        Tap i is the hidden state after layer i - 1; taps of layers that do not run are absent from the result.
        """
        if layers is None:
            layers = range(start, self.config.num_layers if stop is None else stop)
        spans = ctx.spans() if self.stack is not None else None
        if spans is not None:
            return self._run_native(h, positions, spans, layers, taps)
        h = h.to(self.embedding.dtype)
        rotation = self.rope.at(positions, h.dtype) if self.rope is not None else None
        taken = {layers[0]: h} if len(layers) and layers[0] in taps else {}
        for i in layers:
            h = self.layers[i](h, rotation, ctx, self.exact)
            if i + 1 in taps:
                taken[i + 1] = h
        return RunOutput(hidden=h, taps=taken)

    def _run_native(
        self, h: Tensor, positions: Tensor, spans: Sequence[Span], layers: Sequence[int], taps: Collection[int]
    ) -> RunOutput:
        """The same by the native kernels: h [N, D] float32."""
        assert self.stack is not None and self.rope is not None
        h = h.float().clone()
        taken = {layers[0]: h.clone()} if len(layers) and layers[0] in taps else {}
        states = {i: torch.empty_like(h) for i in layers if i + 1 in taps}
        rotation = self.rope.at(positions, torch.float32)
        self.stack.run(h, rotation.cos, rotation.sin, spans, layers, states)
        return RunOutput(hidden=h, taps=taken | {i + 1: state for i, state in states.items()})

    def chain(
        self, tokens: Sequence[int], positions: Sequence[int], ctx: AttentionContext, steps: int
    ) -> list[list[int]]:
        """Greedy chains in one native call (after `accelerate` only): the tokens found at each of `steps` steps.

        tokens, positions: one for each sequence; `ctx`: one row of each, behind which the cache has room for the steps.
        """
        spans = ctx.spans()
        assert self.stack is not None and self.rope is not None and spans is not None
        places = torch.tensor(positions) + torch.arange(steps)[:, None]  # [steps, B]
        rotation = self.rope.at(places.flatten(), torch.float32)
        return self.stack.chain(self.embedding, tokens, rotation.cos, rotation.sin, spans, steps)

    def logits(self, h: Tensor) -> Tensor:
        """Final norm and head: [M, D] -> [M, V]."""
        if self.stack is not None:
            return self.stack.logits(h.float(), norm=True)
        return self.head(self.final_norm(h))

    def head(self, h: Tensor) -> Tensor:
        """The head alone, for states that are normed already: [M, D] -> [M, V]."""
        if self.stack is not None:
            return self.stack.logits(h.float(), norm=False)
        return self.lm_head(h)  # type: ignore[no-any-return]

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
