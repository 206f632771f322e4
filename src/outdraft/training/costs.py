"""What a round of drafting costs on this machine, measured once in the engine, and the speed-up that follows.

    speed-up = tau * plain / (draft + verify)        plain: a target pass over one row; verify: over k + 1 rows;
                                                     draft: k drafted tokens; tau: tokens a round

Leviathan et al. 2022, https://arxiv.org/abs/2211.17192, with a measured pass of k + 1 rows in place of one that costs
what a row does. The draft need not be trained: what a round costs does not depend on what is accepted.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from outdraft.core.learner import Learner, LearnMethod
from outdraft.core.params import SamplingParams
from outdraft.engine.llm import LLM
from outdraft.engine.writer import all_whole

_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
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
    target: Path,
    *,
    depth: int,
    prompts: Seq[Seq[int]],
    tokens: int = 24,
    dtype: str = "auto",
    device: str = "cpu",
) -> Costs:
    """The least of a few runs over `prompts`, each of `tokens` tokens, plain and with the draft as it is."""
    settings: dict[str, Any] = {"dtype": dtype, "device": device}
    plain = _seconds(LLM(target, **settings), prompts, tokens)
    with TemporaryDirectory() as place:
        learner.save(Path(place))
        options: Mapping[str, Any] = {"model": place, **method.drafts}
        drafting = LLM(
            target, drafter=method.drafter or kind, drafter_options=options, verifier="rejection", policy="fixed",
            num_speculative_tokens=depth, **settings,
        )  # fmt: skip
        rounds = _seconds(drafting, prompts, tokens)
    return Costs(plain=plain[1], verify=rounds[1], draft=rounds[0], depth=depth)


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
