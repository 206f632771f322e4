"""Random passes over a random pool: ragged chains, trees and masks, padded to a bucket."""

import random

import torch
from torch import Tensor

from outdraft.nn.attention.rows import PAGE, Bucket, NewRows, RowBuffers, chain_bits, find_bucket, mask_bits, tree_bits

POOL_PAGES = 200


class MadePass:
    """`parts` rows over a pool of one layer: keys and values [pages, Hkv, 16, d]; NaN where no row may look."""

    def __init__(
        self,
        seed: int,
        *,
        heads: int = 4,
        kv_heads: int = 2,
        width: int = 16,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        rng, noise = random.Random(seed), torch.Generator().manual_seed(seed)
        free = list(range(1, POOL_PAGES))
        rng.shuffle(free)
        self.parts = [self._part(rng, free) for _ in range(rng.randint(1, 4))]
        self.num_rows = sum(len(part.ids) for part in self.parts)
        pages = max(len(part.pages) for part in self.parts)
        bucket = find_bucket(
            rows=self.num_rows, seqs=len(self.parts), pages=pages, groups=heads // kv_heads, max_pages=64
        )
        self.bucket: Bucket = bucket
        self.buffers = RowBuffers(bucket, 0, torch.device(device))
        self.buffers.fill(self.parts)
        self.q = torch.randn(bucket.rows, heads, width, generator=noise).to(dtype).to(device)
        self.keys, self.values = (self._pool(noise, kv_heads, width, dtype).to(device) for _ in range(2))

    @staticmethod
    def _part(rng: random.Random, free: list[int]) -> NewRows:
        n = rng.choice((1, 2, 5, 17, 40))
        base = rng.choice((0, 1, 15, 16, 100, 300, 520))
        kind = rng.choice(("chain", "tree", "mask"))
        parents = [-1 if i == 0 else i - 1 if kind == "chain" else rng.randrange(i) for i in range(n)]
        depths: list[int] = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        sees = chain_bits(n) if kind == "chain" else tree_bits(parents)
        if kind == "mask":
            mask = torch.tensor([[(j <= i and rng.random() < 0.5) or i == j for j in range(n)] for i in range(n)])
            sees = mask_bits(mask)
        pages = [free.pop() for _ in range(-(-(base + n) // PAGE))]
        return NewRows(ids=[7] * n, positions=[base + d for d in depths], base=base, sees=sees, pages=pages)

    def _pool(self, noise: torch.Generator, kv_heads: int, width: int, dtype: torch.dtype) -> Tensor:
        pool = torch.full((POOL_PAGES, kv_heads, PAGE, width), float("nan"))
        for part in self.parts:
            for slot in range(part.base + len(part.ids)):
                pool[part.pages[slot // PAGE], :, slot % PAGE] = torch.randn(kv_heads, width, generator=noise)
        return pool.to(dtype)

    def one_by_one(self, window: int | None, scale: float, cap: float | None = None) -> Tensor:
        """Every real row by itself, in float64, over a list of the slots that it sees: [real rows, H * d]."""
        outs, row = [], 0
        for part in self.parts:
            for i, bits in enumerate(part.sees):
                places = {slot: slot for slot in range(part.base)}
                places |= {part.base + j: part.positions[j] for j in range(len(part.ids)) if bits >> j & 1}
                near = [s for s, place in places.items() if window is None or part.positions[i] - place < window]
                outs.append(self._row(row, part, near, scale, cap))
                row += 1
        return torch.stack(outs)

    def _row(self, row: int, part: NewRows, slots: list[int], scale: float, cap: float | None) -> Tensor:
        heads, kv_heads = self.q.shape[1], self.keys.shape[1]
        picked = [
            torch.stack([pool[part.pages[slot // PAGE], :, slot % PAGE] for slot in slots], 1).double().cpu()
            for pool in (self.keys, self.values)
        ]  # [Hkv, n, d] each
        k, v = (x.repeat_interleave(heads // kv_heads, 0) for x in picked)
        scores = (self.q[row].double().cpu()[:, None] * k).sum(-1) * scale
        scores = scores if cap is None else cap * torch.tanh(scores / cap)
        return (torch.softmax(scores, -1)[:, :, None] * v).sum(1).flatten()
