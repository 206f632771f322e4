"""A request's constraint, made and checked before any work.

Data in: a request and the size of the vocabulary; data out: the constraint of one text, or an error.
"""

import torch
from torch import Tensor

from outdraft.core.constraint import Constraint
from outdraft.core.errors import RequestError
from outdraft.core.request import Request
from outdraft.core.shown import shown


def make_constraint(request: Request, vocab_size: int) -> Constraint | None:
    """A new constraint for one text of the request; None where it brings none.

    Raises `RequestError` for what is no constraint, for one of another vocabulary, and where no token may come first.
    """
    if request.constraint is None:
        return None
    constraint = request.constraint()
    if not (hasattr(constraint, "advance") and hasattr(constraint, "allowed")):
        raise RequestError(
            f"constraint made {shown(constraint)}, which has no advance and allowed (outdraft.core.constraint): give a "
            "function without arguments that makes one"
        )
    allowed = constraint.allowed([])
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool or allowed.shape != (vocab_size,):
        told = f"{allowed.dtype} of shape {list(allowed.shape)}" if isinstance(allowed, Tensor) else shown(allowed)
        raise RequestError(f"the constraint's allowed([]) is {told}: it must be a tensor [{vocab_size}] of bool")
    if not bool(allowed.any()):
        raise RequestError("the constraint allows no first token, so nothing can be written")
    return constraint
