"""Vectors in place of token embeddings: rows of an image or of speech in a prompt, learned vectors of probe nodes."""

import torch
from torch import Tensor


def put_in(embedded: Tensor, vectors: Tensor) -> Tensor:
    """Token embeddings [n, D], and in their places the rows of `vectors` [n, D] that are not NaN."""
    vectors = vectors.to(embedded)
    return torch.where(vectors.isnan(), embedded, vectors)
