"""What a round of drafting costs on this machine, measured once in the engine, and the speed-up that follows.

    speed-up = tau * plain / (draft + verify)        plain: a target pass over one row; verify: over k + 1 rows;
                                                     draft: k drafted tokens; tau: tokens a round

Leviathan et al. 2022, https://arxiv.org/abs/2211.17192, with a measured pass of k + 1 rows in place of one that costs
what a row does. The draft need not be trained: what a round costs does not depend on what is accepted. The target is
the one that teaches: an engine shares its tensors, and only where kernels want them in a layout of their own is there
another copy, for as long as it is measured.
"""

import copy
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from outdraft.core.learner import TARGET, Learner, LearnMethod
from outdraft.engine.callers.result import all_whole
from outdraft.engine.llm import LLM
from outdraft.models.files.load import tensors_of
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.native import NativeDecoder, can_pack
from outdraft.models.networks.network import Network
from outdraft.options.params import SamplingParams

_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """Seconds of one sequence alone."""

    plain: float  # a step of plain decoding
    verify: float  # the target's part of a round
    draft: float  # the draft's part
    depth: int  # drafted tokens

    def speedup(self, tau: float) -> float:
        """Over plain decoding, of a draft with so many tokens a round."""
        return tau * self.plain / (self.draft + self.verify)


def measure_costs(
    kind: str,
    method: LearnMethod[Any, Any],
    learner: Learner,
    target: Decoder,
    source: Path,
    *,
    depth: int,
    prompts: Seq[Seq[int]],
    tokens: int = 24,
    dtype: torch.dtype | None = None,
) -> RoundCosts:
    """The least of a few runs over `prompts`, each of `tokens` tokens, plain and with the draft as it is.

    `target`: from the directory `source`, with which it stays as it is. `dtype`: that engines serve it in; its own by
    default.
    """
    with TemporaryDirectory() as place:
        learner.save(Path(place))
        taught = Path(place, TARGET)  # one that is taught along costs what the original does
        engine = LLM.over(taught if taught.is_dir() else source, served(target, dtype))
        plain = _seconds(engine, prompts, tokens)
        drafter = {"name": method.drafter or kind, **method.drafter_options(Path(place)), **method.drafts}
        drafting = engine.with_drafter(drafter, verifier="rejection", policy="fixed", num_speculative_tokens=depth)
        rounds = _seconds(drafting, prompts, tokens)
    return RoundCosts(plain=plain[1], verify=rounds[1], draft=rounds[0], depth=depth)


def served(target: Decoder, dtype: torch.dtype | None = None) -> Network:
    """These weights as an engine holds them. The decoder itself is not changed, and its tensors are not copied.

    They are copied where training computes in another format than engines will (`dtype`).
    """
    if dtype not in (None, target.dtype):
        theirs, target = tensors_of(target), Decoder(target.config, dtype, target.device).eval().requires_grad_(False)
        for name, one in tensors_of(target).items():
            one.copy_(theirs[name])
    if can_pack(target.config, target.dtype, target.device):
        return NativeDecoder(target)
    shared = {id(one): one for one in (*target.parameters(), *target.buffers())}
    beside = copy.deepcopy(target, shared)
    beside.set_exact(target.device.type == "cpu")
    return beside


def _seconds(llm: LLM, prompts: Seq[Seq[int]], tokens: int) -> tuple[float, float]:
    """Of a step: drafting, and all the rest. The first run only warms up."""
    asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
    settings = SamplingParams(max_tokens=tokens, temperature=1.0, ignore_eos=True)
    found = []
    for _ in range(1 + _REPEATS):
        made = [all_whole(llm.generate([one], settings))[0].stats for one in asked]
        steps = sum(one.num_steps for one in made)
        draft = sum(one.draft_seconds for one in made) / steps
        found.append((draft, sum(one.target_seconds + one.rest_seconds for one in made) / steps))
    return min(found[1:], key=sum)
