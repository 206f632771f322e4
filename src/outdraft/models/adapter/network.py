"""A causal language model of `transformers` as a `Network`: whole passes over flat rows, any tree, any cache of ours.

    embed   their embedding table
    run     their decoder over [1, N] rows with given positions, up to its final norm; taps by hooks on its layers
    norm    their final norm
    head    all that their model does behind its decoder: head, soft cap, scales; the decoder stands aside meanwhile

Their decoder runs from the first layer to the last: a drafter that leaves layers out, ends early or begins in the
middle is refused by name.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import local
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import Needs
from outdraft.models.adapter.anatomy import Anatomy
from outdraft.models.adapter.attention import Attending, ContextAttention, attending, is_attending, removing
from outdraft.models.adapter.exact_rows import ExactRows
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.network import RunOutput
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import RowRange
from outdraft.options.errors import CapabilityError


class TransformersNetwork:
    """`Network` over their model.

    `exact`: rows are kept apart (`exact_rows.py`). `unknown`: functions of an exact pass that may mix them.
    `reads_ids`: their decoder looks at token ids besides the embeddings.
    """

    def __init__(self, model: Any, config: ModelConfig, anatomy: Anatomy) -> None:
        self.config = config
        self.exact = False
        self.unknown: set[str] = set()
        self.reads_ids = False
        self.model = model
        self._anatomy = anatomy
        self._table: nn.Module = model.get_input_embeddings()
        self._last = local()  # `embedded`: what `embed` gave this thread last, and for which ids
        self._behind = _behind_decoder(model, anatomy.decoder)

    @property
    def dtype(self) -> torch.dtype:
        return next(self._table.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self._table.parameters()).device

    @property
    def kernels(self) -> str:
        return "pytorch"

    @property
    def num_parameters(self) -> int:
        return sum(one.numel() for one in self.model.parameters())

    @property
    def pass_bytes(self) -> int:
        """Bytes of all weights that a pass may read: those of all experts, though it reads few of them."""
        table = {id(one) for one in self._table.parameters()}
        head = {id(one) for one in getattr(self.model.get_output_embeddings(), "parameters", lambda: ())()}
        read = [one for one in self.model.parameters() if id(one) not in table - head]
        return sum(one.numel() * one.element_size() for one in read)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [N], positions [N] -> [N, D]. Learned positions are added in `run`."""
        h: Tensor = self._table(ids)
        self._last.embedded = (h, ids) if self.reads_ids else None
        return h

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
        """All layers over h [N, D], which `embed` gave. Tap i: the state after i layers.

        Raises `CapabilityError` for a part of the layers, and for taps in the middle of one.
        """
        count, anatomy = self.config.num_layers, self._anatomy
        if start or len(skip) or stop not in (None, count) or any(tap < 0 for tap in taps):
            raise CapabilityError(whole_passes_only(self.config.architecture))
        taken: dict[int, Tensor] = {0: h} if 0 in taps else {}
        given = self._given(h)
        tapped = {i: anatomy.layers[i - 1] for i in taps if 0 < i < count}
        attention = ContextAttention(ctx, anatomy.shape, self.dtype)
        with (
            self._tapping(attention, tapped, taken),
            _seeing(attention, anatomy.norm) as seen,
            attending(attention),
            self._apart(len(h), ctx.bulk),
        ):
            out = anatomy.decoder(**given, position_ids=positions[None], use_cache=False)[0]
        hidden = (seen[0] if seen else out)[0]  # [N, D]
        if count in taps:
            taken[count] = hidden
        return RunOutput(hidden=hidden, taps=taken)

    def logits(self, h: Tensor) -> Tensor:
        return self.head(self.norm(h))

    def norm(self, h: Tensor) -> Tensor:
        with self._apart(len(h)):
            return h if self._anatomy.norm is None else self._anatomy.norm(h[None])[0]  # type: ignore[no-any-return]

    def head(self, h: Tensor) -> Tensor:
        """All that stands behind the decoder: [M, D] -> [M, V]."""
        with self._apart(len(h)):
            return self._behind(inputs_embeds=h[None], use_cache=False).logits[0]  # type: ignore[no-any-return]

    def _apart(self, num_rows: int, bulk: Sequence[RowRange] = ()) -> AbstractContextManager[Any]:
        """While this lasts, rows are kept apart if they are to be."""
        return ExactRows(num_rows, bulk, self.unknown) if self.exact else nullcontext()

    def _given(self, h: Tensor) -> dict[str, Tensor]:
        """The rows as their decoder takes them. Raises `CapabilityError` for vectors where it reads token ids."""
        if not self.reads_ids:
            return {"inputs_embeds": h[None]}
        last: tuple[Tensor, Tensor] | None = getattr(self._last, "embedded", None)
        if last is None or last[0] is not h or not torch.equal(self._table(last[1]), h):
            raise CapabilityError(
                f"model_type={self.config.architecture!r} reads token ids in its layers: vectors in place of tokens "
                "(prompt_embeds, learned draft tokens) cannot be used with it"
            )
        return {"input_ids": last[1][None]}

    @contextmanager
    def _tapping(self, one: Attending, wanted: Mapping[int, nn.Module], taken: dict[int, Tensor]) -> Iterator[None]:
        """Put what the layers return in this pass into `taken`."""
        with removing([layer.register_forward_hook(self._taker(one, i, taken)) for i, layer in wanted.items()]):
            yield

    def _taker(self, one: Attending, tap: int, taken: dict[int, Tensor]) -> Callable[[nn.Module, Any, Any], None]:
        def take(module: nn.Module, args: Any, out: Any) -> None:
            if not is_attending(one):  # another thread's pass
                return
            state = out[0] if isinstance(out, tuple) else out  # [1, N, D]
            if state.ndim != 3 or state.shape[-1] != self.config.hidden_size:
                raise CapabilityError(
                    f"model_type={self.config.architecture!r} has hidden states of shape {list(state.shape)}, which "
                    "drafters cannot read: take a drafter that reads no hidden states"
                )
            taken[tap] = state[0]

        return take


def refuse_parts(drafter: str, needs: Needs, kind: str) -> None:
    """Raise `CapabilityError` for a drafter that needs more than whole passes, and states between layers."""
    inside = any(tap < 0 for tap in (*needs.taps, *needs.prompt_taps))
    if needs.resume_layer or needs.layer_subset or inside:
        raise CapabilityError(f"drafter {drafter!r}: {whole_passes_only(kind)}")


def whole_passes_only(kind: str) -> str:
    """Why a drafter that needs a part of the layers cannot draft."""
    return (
        f"model_type={kind!r} runs through transformers, whole passes only: take a drafter that does not leave layers "
        "out, end early, begin in the middle, or look into a layer"
    )


@contextmanager
def _seeing(one: Attending, module: nn.Module | None) -> Iterator[list[Tensor]]:
    """What the module is given in this pass."""
    seen: list[Tensor] = []

    def note(own: nn.Module, args: Any) -> None:
        if is_attending(one):
            seen.append(args[0])

    with removing([module.register_forward_pre_hook(note)] if module is not None else []):
        yield seen


class _Result(dict[Any, Any]):
    """What a decoder returns, as far as a model looks at it: its last states; whatever else is asked for is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return self.get("last_hidden_state" if key == 0 else key)


class _HandOn(nn.Module):
    """Stands in a decoder's place and hands on the states that it is given."""

    def forward(self, *args: Any, inputs_embeds: Tensor, **others: Any) -> _Result:
        """[1, M, D] -> the same."""
        return _Result(last_hidden_state=inputs_embeds)


def _behind_decoder(model: Any, decoder: nn.Module) -> Any:
    """What a model computes after its decoder: head, soft cap, scales, by all of the class's own code.

    A shallow copy of the model in which the decoder hands on what it is given. Nothing of `model` is changed, and no
    weight is copied.
    """
    path = next(name for name, module in model.named_modules() if module is decoder)
    shell = below = _shallow(model)
    *outer, last = path.split(".")
    for name in outer:
        below._modules[name] = _shallow(below._modules[name])
        below = below._modules[name]
    below._modules[last] = _HandOn()
    return shell


def _shallow(module: Any) -> Any:
    """The same module with a list of parts of its own."""
    one = copy.copy(module)
    one._modules = dict(module._modules)
    return one
