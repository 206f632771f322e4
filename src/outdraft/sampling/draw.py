"""From a distribution and a key to tokens: the exponential race.

Token i finishes at -log(u_i) / distribution_i; the first to finish is a draw from the distribution, the first k in
order are k draws without replacement (the Gumbel-max trick in another guise; Kool, van Hoof and Welling, "Stochastic
beams and where to find them", 2019, https://arxiv.org/abs/1903.06059). Two distributions raced on the same noise agree
nearly as often as their overlap allows: that is what makes the coupled rule accept.
"""

import torch
from torch import Tensor

from outdraft.kernels.decoder import distributions
from outdraft.options.errors import NumericsError
from outdraft.sampling.noise import uniforms


def race(distribution: Tensor, key: int, count: int = 1) -> list[int]:
    """`count` distinct indices of `distribution` [V] in drawing order; fewer if fewer have any mass.

    The distribution need not be normalised. Raises `NumericsError` when it has no mass or is not finite.
    """
    if (drawn := distributions.race(distribution, key, count)) is not None:
        return drawn
    times = (
        torch.log(uniforms(key, distribution.shape[0], distribution.device)).neg_().div_(distribution.to(torch.float64))
    )
    count = min(count, distribution.shape[0])
    order = torch.topk(times, count, largest=False).indices if count > 1 else torch.argmin(times).reshape(1)
    sound = (distribution[order] > 0) & distribution.sum().isfinite()
    drawn = [index for index, is_sound in zip(order.tolist(), sound.tolist(), strict=True) if is_sound]
    if not drawn:
        raise NumericsError(
            f"cannot draw from a distribution of {distribution.shape[0]} entries: it has no mass, or holds NaN or an "
            "infinite entry"
        )
    return drawn
