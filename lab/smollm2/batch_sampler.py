"""Thousands of texts at once, in PyTorch alone: a dense cache with a slot for each, one token for all of them a step.

    slots   [ A A A . | B B . . | C C C C ]      a step writes one row into each; D's prompt takes the place of C
              0 1 2     0 1       0 1 2 3        when C has ended, among the prompts of one padded pass

The host does not wait for a step: what has ended is seen on the device, and asked for by `harvest` alone. The layers
are the engine's own (`models/networks`), attention is `slot_attention.py`. Greedy texts in float32 are the
engine's (tests/lab/test_batch_answers.py). One step of SmolLM2-135M over 2,048 slots of
300 tokens reads 14 GB of keys and values (23 KB a token) and 0.3 GB of weights: 5 to 10 ms at 3 TB/s, and about 5 ms
more for logits and for what lies between.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lab.smollm2.slot_attention import Attention, choose
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError

_PREFILL = 1 << 16  # rows of a padded pass, at most
_ROUND = 64  # the bound of the positions that a step reads is a multiple


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A text to continue. `tag`: what the caller knows it by."""

    ids: Seq[int]
    temperature: float
    most: int
    tag: Any = None


class Slots:
    """`size` texts of at most `length` tokens. Raises `ConfigError` for a model that is no plain Llama."""

    def __init__(self, decoder: Decoder, *, size: int, length: int, most: int, ends: Seq[int], seed: int = 0) -> None:
        config = decoder.config
        if config.windows or config.score_cap or config.mixers or config.vocab_size > 1 << 16 or length % _ROUND:
            raise ConfigError("a model without windows, caps and other mixers, at most 65536 ids, and whole pages")
        device, dtype = decoder.device, decoder.dtype
        for rope in decoder.ropes.values():
            rope.complete(length, dtype, device)
        shape = (config.num_layers, size, config.num_kv_heads, length, config.head_dim)
        self.decoder, self.length, self.most = decoder, length, most
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self.jobs: list[Job | None] = [None] * size
        self._reach = np.zeros(size, np.int64)  # the positions of the slots are not beyond, as the host knows
        self._rows = torch.arange(size, device=device)
        self._last = torch.zeros_like(self._rows)
        self._positions = torch.zeros_like(self._rows)  # where the key of `last` will stand
        self._counts, self._limits = torch.zeros_like(self._rows), torch.zeros_like(self._rows)
        self._alive = torch.zeros(size, dtype=torch.bool, device=device)
        self._temperatures = torch.zeros(size, device=device)
        self._written = torch.zeros(size, most + 1, dtype=torch.int32, device=device)  # the last column: of idle slots
        self._ends = torch.tensor(sorted(ends), device=device)
        self._generator = torch.Generator(device).manual_seed(seed)
        self._way = choose(self.keys[0], self.values[0], config.num_heads)

    @property
    def num_free(self) -> int:
        return self.jobs.count(None)

    @torch.inference_mode()
    def fill(self, jobs: Seq[Job]) -> None:
        """Read these prompts into free slots, and write the first token of each."""
        free = [i for i, job in enumerate(self.jobs) if job is None]
        todo = sorted(jobs, key=lambda job: len(job.ids))
        while todo:
            count = min(len(todo), max(1, _PREFILL // len(todo[0].ids)))
            while count > 1 and count * len(todo[count - 1].ids) > _PREFILL:
                count = count * 3 // 4
            self._read(free[:count], todo[:count])
            free, todo = free[count:], todo[count:]

    def _read(self, slots: list[int], jobs: list[Job]) -> None:
        device, width = self._rows.device, max(len(job.ids) for job in jobs)
        table = np.zeros((len(jobs), width), np.int64)
        for row, (slot, job) in enumerate(zip(slots, jobs, strict=True)):
            assert 0 < len(job.ids) <= self.length - job.most, "a prompt and its answer must fit into a slot"
            table[row, : len(job.ids)] = job.ids
            self.jobs[slot], self._reach[slot] = job, len(job.ids)
        rows = torch.tensor(slots, device=device)
        numbers = torch.tensor([(len(job.ids), min(job.most, self.most)) for job in jobs], device=device)
        self._temperatures[rows] = torch.tensor([float(job.temperature) for job in jobs], device=device)
        self._positions[rows], self._limits[rows] = numbers[:, 0], numbers[:, 1]
        self._counts[rows], self._alive[rows] = 0, True
        positions = torch.arange(width, device=device).repeat(len(jobs))
        h = self.decoder.embed(torch.from_numpy(table).to(device).flatten(), positions)
        h = self.decoder.run(h, positions, _Prompts(self.keys, self.values, rows, width)).hidden
        ends = h.view(len(jobs), width, -1)[torch.arange(len(jobs), device=device), numbers[:, 0] - 1]
        self._take(rows, self._sample(self.decoder.logits(ends), self._temperatures[rows]))

    @torch.inference_mode()
    def steps(self, count: int) -> None:
        """So many more tokens of every text that has not ended."""
        for _ in range(count):
            most = int(self._reach.max()) + 1
            bound = min(self.length, -(-most // _ROUND) * _ROUND)
            positions = self._positions
            attention = self._way(positions, bound, self.keys[0])
            ctx = _Steps(self.keys, self.values, self._rows, positions, attention)
            h = self.decoder.run(self.decoder.embed(self._last, positions), positions, ctx).hidden
            tokens = self._sample(self.decoder.logits(h), self._temperatures)
            self._positions = positions + self._alive
            self._take(self._rows, tokens)
            self._reach[self._reach > 0] += 1

    def _take(self, rows: Tensor, tokens: Tensor) -> None:
        """One more token of each of these slots; a slot that has ended keeps its text."""
        alive, counts = self._alive[rows], self._counts[rows]
        self._written[rows, torch.where(alive, counts, self.most)] = tokens.int()
        counts = counts + alive
        self._last[rows], self._counts[rows] = tokens, counts
        self._alive[rows] = alive & (counts < self._limits[rows]) & ~torch.isin(tokens, self._ends)

    def _sample(self, logits: Tensor, temperatures: Tensor) -> Tensor:
        """logits [M, V], temperatures [M] -> ids [M]: the largest of logit / T plus Gumbel noise; 0: of the logits."""
        logits = logits.float()
        noise = torch.empty_like(logits).exponential_(generator=self._generator).clamp_(min=1e-30).log_()
        drawn = (logits / temperatures.clamp(min=1e-3)[:, None]).sub_(noise).argmax(-1)
        return torch.where(temperatures > 0, drawn, logits.argmax(-1))

    @torch.inference_mode()
    def harvest(self) -> list[tuple[Job, NDArray[np.uint16]]]:
        """The texts that have ended, whose slots are free then; waits for the device."""
        alive = self._alive.cpu().numpy()
        done = [i for i, job in enumerate(self.jobs) if job is not None and not alive[i]]
        if not done:
            return []
        rows = torch.tensor(done, device=self._rows.device)
        written, counts = self._written[rows].cpu().numpy().astype(np.uint16), self._counts[rows].tolist()
        self._positions[rows] = 0  # an idle slot reads next to nothing
        ended: list[tuple[Job, NDArray[np.uint16]]] = []
        for slot, ids, count in zip(done, written, counts, strict=True):
            job = self.jobs[slot]
            assert job is not None
            ended.append((job, ids[:count].copy()))
            self.jobs[slot], self._reach[slot] = None, 0
        return ended


class _Prompts:
    """Attention of a padded pass: rows see their own prompt, whose keys and values go to the slot."""

    bulk = ()

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, width: int) -> None:
        self._keys, self._values, self._rows, self._width = keys, values, rows, width

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """Padding stands behind the prompt, where no row of it looks, and later tokens write over it."""
        q, k, v = (x.view(-1, self._width, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))  # [B, H, T, d]
        self._keys[layer][self._rows, :, : self._width] = k
        self._values[layer][self._rows, :, : self._width] = v
        shared = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(shared, 1) for x in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)

    def spans(self) -> None:
        """There are no native kernels here."""


class _Steps:
    """Attention of one row a slot, whose key and value go to the slot first."""

    bulk = ()

    def __init__(self, keys: Tensor, values: Tensor, rows: Tensor, positions: Tensor, attention: Attention) -> None:
        self._keys, self._values, self._rows, self._positions = keys, values, rows, positions
        self._attention = attention

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [S, H, d], k and v [S, Hkv, d] -> [S, H * d]."""
        keys, values = self._keys[layer], self._values[layer]
        keys[self._rows, :, self._positions] = k
        values[self._rows, :, self._positions] = v
        return self._attention(q, keys, values, scale)

    def spans(self) -> None:
        """There are no native kernels here."""
