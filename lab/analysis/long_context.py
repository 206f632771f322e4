"""When self-speculation over a sparse cache pays: the cost of a pass by its bytes, those of keys and values included.

A draft step is a pass of the target itself over `budget` cached tokens instead of all n. With r rows for each of B
sequences, and m cached tokens that each of them reads,

    t(r, m) = max(W / BW, B r F / P)  +  B m K / BW        linear maps: weights or arithmetic  +  attention: its bytes

    S(k) = E(k) t(1, n) / (k t(1, budget) + t(k + 1, n))   E(k) = 1 + alpha + ... + alpha^k

so with long contexts a draft step costs next to nothing, the more so the more sequences share the weights. The question
is that of Sadhukhan et al., "MagicDec: breaking the latency-throughput tradeoff for long context generation with
speculative decoding", 2024, https://arxiv.org/abs/2408.11049; the formulas are our own (docs/theory.md). Attention's
arithmetic is left out: it does a few operations for each byte that it reads. Data in: sizes and a machine; data out:
speed-ups, the best k, and the context beyond which there is a gain.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from math import inf

from outdraft.analysis.sheet import Sheet, to_markdown
from outdraft.analysis.theory import expected_speedup, expected_tokens

CONTEXTS = (1024, 4096, 16384, 32768, 65536, 131072)
BATCHES = (1, 4, 16, 64, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseDraft:
    """A target, a machine, a batch and a budget. The defaults: 8 billion parameters (32 layers, 8 key/value heads of
    128) in 16 bits, on an accelerator of 3.35 TB/s and 989 TFLOP/s."""

    weight_bytes: float = 16.1e9  # W, read once a pass
    kv_bytes: float = 131072  # K, of one cached token
    row_flops: float = 16.1e9  # F, operations of one row in the linear maps
    bandwidth: float = 3.35e12  # BW, bytes a second
    peak_flops: float = 989e12  # P, operations a second
    batch: int = 1  # B
    budget: int = 512  # cached tokens that a draft step reads
    alpha: float = 0.8  # of a draft that sees less than everything

    @property
    def sizes(self) -> str:
        """The target and the machine, in words."""
        return (
            f"weights {self.weight_bytes / 1e9:.3g} GB, {self.kv_bytes / 1024:.4g} KiB a cached token; "
            f"{self.bandwidth / 1e9:.4g} GB/s, {self.peak_flops / 1e12:.4g} TFLOP/s"
        )

    def pass_seconds(self, rows: int, cached: float) -> float:
        """t: of a pass of so many rows for each sequence, each reading so many cached tokens."""
        return self._linear(rows) + self._attention * cached

    def acceptance(self, context: float) -> float:
        """A draft that sees everything is the target."""
        return 1.0 if context <= self.budget else self.alpha

    def speedup(self, k: int, context: float) -> float:
        """S against plain decoding of the same batch."""
        plain, draft = self.pass_seconds(1, context), self.pass_seconds(1, min(context, self.budget))
        return expected_speedup(
            self.acceptance(context),
            k,
            draft_cost=draft / plain,
            pass_cost=lambda rows: self.pass_seconds(rows, context) / plain,
        )

    def best(self, context: float, longest: int = 32) -> tuple[int, float]:
        """(k, S) with the greatest S; (0, 1.0), plain decoding, is a choice."""
        return max(((k, self.speedup(k, context)) for k in range(longest + 1)), key=lambda cell: cell[1])

    def break_even(self, longest: int = 32) -> float:
        """The context beyond which some k gains: the least n of S(k) = 1; infinite where nothing is ever accepted.

        Both sides of E t(1, n) = k t(1, budget) + t(k + 1, n) are straight lines in n, so they cross once.
        """
        return min(self._break_even(k) for k in range(1, longest + 1))

    def _break_even(self, k: int) -> float:
        gained = expected_tokens(self.alpha, k) - 1
        one, more = self._linear(1), self._linear(k + 1)
        lost = k * self.pass_seconds(1, self.budget) + more - one
        return (lost / gained - one) / self._attention if gained else inf

    def _linear(self, rows: int) -> float:
        return max(self.weight_bytes / self.bandwidth, self.batch * rows * self.row_flops / self.peak_flops)

    @property
    def _attention(self) -> float:
        return self.batch * self.kv_bytes / self.bandwidth


def context_sheet(draft: SparseDraft, batches: Seq[int], contexts: Seq[int], longest: int = 32) -> Sheet:
    """A row for each context, a column for each batch: the best draft length, its speed-up; last, where gains begin."""
    drafts = [replace(draft, batch=batch) for batch in batches]
    cells = [[each.best(context, longest) for each in drafts] for context in contexts]
    begins = [each.break_even(longest) for each in drafts]
    return Sheet(
        title=f"Drafting over {draft.budget} cached tokens: best length, its speed-up (alpha {draft.alpha:g})\n"
        f"{draft.sizes}",
        columns=["context", *(f"batch {batch}" for batch in batches)],
        rows=[
            *(
                [f"{context}", *(f"{k} -> {gain:.2f}x" for k, gain in row)]
                for context, row in zip(contexts, cells, strict=True)
            ),
            ["gains beyond", *("never" if length == inf else f"{length:.0f}" for length in begins)],
        ],
        notes=("0 -> 1.00x: plain decoding is best; a draft that sees the whole context costs what it saves",),
    )


def main(words: Seq[str] | None = None) -> None:
    """The table of docs/theory.md: `python -m lab.analysis.long_context --budget 512`."""
    parser = ArgumentParser(prog="python -m lab.analysis.long_context", description=context_sheet.__doc__)
    parser.add_argument(
        "--budget", type=int, default=SparseDraft().budget, help="cached tokens that a draft step reads"
    )
    parser.add_argument("--alpha", type=float, default=SparseDraft().alpha, help="the chance of acceptance")
    sys.stdout.write(to_markdown(context_sheet(SparseDraft(**vars(parser.parse_args(words))), BATCHES, CONTEXTS)))


if __name__ == "__main__":
    main()
