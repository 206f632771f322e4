"""Convolutions along a block around every sublayer, where a network has them.

    y_t = sum over tau of (base[tau] + d[tau]) x_(t - tau)      d = a projection of the normed rows, one number for each
                                                                group of channels

Before the sublayer with base[0], d[0], behind it with base[1], d[1]; no shift leaves its block. "DFlash 2", Inco AI,
2026, https://inco.ai/blog/dflash2/, as speculators 0.9 has it.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.blocks.correction import unfilled
from outdraft.drafters.shared.blocks.net import BlockConfig, BlockNet
from outdraft.models.families.shared.naming import Entry
from outdraft.nn.linear import Linear
from outdraft.options.errors import CapabilityError


class BlockConvolution(nn.Module):
    """Around one sublayer. Begins as nothing: the row itself, before and behind.

    Raises `CapabilityError` for groups that do not divide the channels.
    """

    def __init__(self, width: int, taps: int, group: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        if width % group:
            raise CapabilityError(
                f"conv_group_size={group} does not divide the {width} channels of the network: take one that does"
            )
        self.taps, self.group = taps, group
        self.base_kernel = unfilled(2, taps, width, dtype=dtype, device=device)
        self.kernel_projection = Linear(width, 2 * taps * (width // group), False, dtype, device)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], size: int) -> Tensor:
        """The normed rows [N, D] of blocks of `size` slots, and what they go through -> [N, D]."""
        moved = self.kernel_projection(x).view(len(x), 2, self.taps, -1)
        kernels = self.base_kernel + moved.repeat_interleave(self.group, -1)  # [N, 2, taps, D]
        return self._along(sublayer(self._along(x, kernels[:, 0], size)), kernels[:, 1], size)

    def _along(self, x: Tensor, kernel: Tensor, size: int) -> Tensor:
        """x [N, D], kernel [N, taps, D]: each row and those before it in its block."""
        blocks, found = x.view(-1, size, x.shape[-1]), x * kernel[:, 0]
        for back in range(1, self.taps):
            earlier = nn.functional.pad(blocks, (0, 0, back, 0))[:, :size]
            found = found + earlier.reshape_as(x) * kernel[:, back]
        return found


def convolution_entries(config: BlockConfig) -> Iterable[Entry]:
    """Their tensors, in every layer."""
    for i in range(config.layers.num_layers):
        for where in ("attention_conv", "mlp_conv"):
            for part in ("base_kernel", "kernel_projection.weight"):
                yield Entry(ours=f"layers.{i}.{where}.{part}", theirs=(f"layers.{i}.{where}.{part}",))


@torch.no_grad()
def begin_convolutions(net: BlockNet) -> None:
    """They change nothing at first."""
    for part in net.modules():
        if isinstance(part, BlockConvolution):
            part.base_kernel.zero_()
            part.base_kernel[:, 0] = 1
            part.kernel_projection.weight.zero_()
