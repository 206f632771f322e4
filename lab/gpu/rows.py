"""Exactness, as facts: does a row's arg-max, or do its bits, depend on how many rows share its pass?

The same tokens are scored one at a time and as chains of several lengths, over the same prompt; as a comb too, a tree
whose every node has a sibling that nothing follows. Data out: how many rows changed, by how much, and how wide the gap
to the runner-up was where the arg-max did.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lab.gpu.pair import Pair
from lab.gpu.rounds import PROMPT
from outdraft.control.fixed import FixedOptions, FixedPolicy
from outdraft.core.draft import Draft, chain
from outdraft.core.packing import pack
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.decode.parts import Parts
from outdraft.drafters.none import NoDrafter
from outdraft.engine.graphed import ROW_TILE, GraphedRunner
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.nn.capture import call_each_time
from outdraft.options.params import SamplingParams
from outdraft.verify.auto import Auto


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFact:
    """`rows` rows in a pass against each of them alone."""

    exact: bool  # the engine's exact mode, or the GPU's path
    tile: int | None  # rows of a matrix product on the GPU's path
    shape: str  # "chain", or "comb"
    rows: int  # on the path
    other_bits: int
    other_argmax: int
    largest_difference: float  # of a logit, in units of the row's standard deviation
    smallest_margin: float  # between best and second best, same units, over all rows
    margin_where_changed: float | None  # the widest of those whose arg-max changed


@torch.inference_mode()
def examine_rows(
    pair: Pair, *, exact: bool, tile: int | None = ROW_TILE, counts: tuple[int, ...] = (2, 4, 8, 16, 32, 48, 64)
) -> list[RowFact]:
    """Paths of each length after one prompt, against the same tokens decoded one by one."""
    pair.target.set_exact(exact)
    try:
        runner = Runner(pair.target) if exact else GraphedRunner(pair.target, record=call_each_time, row_tile=tile)
        parts = Parts(
            target=runner,
            drafter=NoDrafter(),
            verifier=Auto(),
            policy=FixedPolicy(FixedOptions(num_speculative_tokens=0)),
        )
        engine = Engine(parts)
        vocab = runner.vocab_size
        prompt = tuple(1 + i * 7 % (vocab - 1) for i in range(PROMPT))
        seq = engine.add(Request(prompt_token_ids=prompt, params=SamplingParams(max_tokens=2, ignore_eos=True)))
        while not seq.num_output:
            engine.step()
        tokens = [seq.pending, *(1 + i * 11 % (vocab - 1) for i in range(1, max(counts)))]
        alone = _one_by_one(runner, seq, tokens)
        found = []
        for count in counts:
            for shape, draft in (("chain", chain(tokens[:count])), ("comb", _comb(tokens[:count], vocab))):
                logits = _score(runner, seq, draft)
                path = [0, *range(1, len(draft.tokens), 2)] if shape == "comb" else list(range(count))
                found.append(_compare(logits[path], alone[:count], exact, tile, shape))
        engine.cancel(seq)
        return found
    finally:
        pair.target.set_exact(False)


def _score(runner: Runner, seq: Sequence, draft: Draft) -> Tensor:
    return runner.forward(pack([seq], [draft])).logits.float()


def _comb(tokens: list[int], vocab: int) -> Draft:
    """The path 0, 1, 3, 5, ... of these tokens; node 2, 4, 6, ... is a sibling of the one before it."""
    ids, parents, parent = [tokens[0]], [-1], 0
    for token in tokens[1:]:
        ids += [token, (token + 1) % vocab]
        parents += [parent, parent]
        parent = len(ids) - 2
    return Draft(tokens=torch.tensor(ids), parents=torch.tensor(parents))


def _one_by_one(runner: Runner, seq: Sequence, tokens: list[int]) -> Tensor:
    """Logits of each token in a pass of its own: [n, V]. The sequence is afterwards as it was."""
    before, text = seq.num_cached, list(seq.tokens)
    rows: list[Tensor] = []
    for token in tokens:
        seq.tokens[before:] = [*tokens[: len(rows)], token]
        rows.append(_score(runner, seq, chain([token])))
        runner.commit(seq, [0])
        seq.num_cached += 1
    runner.cache.truncate(seq.id, before)
    seq.tokens[:], seq.num_cached = text, before
    return torch.cat(rows)


def _compare(found: Tensor, alone: Tensor, exact: bool, tile: int | None, shape: str) -> RowFact:
    unit = alone.std(-1)
    best = alone.topk(2, -1).values
    margin = (best[:, 0] - best[:, 1]) / unit
    changed = found.argmax(-1) != alone.argmax(-1)
    return RowFact(
        exact=exact,
        tile=None if exact else tile,
        shape=shape,
        rows=len(found),
        other_bits=int((found != alone).any(-1).sum()),
        other_argmax=int(changed.sum()),
        largest_difference=float(((found - alone).abs().amax(-1) / unit).max()),
        smallest_margin=float(margin.min()),
        margin_where_changed=float(margin[changed].max()) if bool(changed.any()) else None,
    )
