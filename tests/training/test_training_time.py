"""EAGLE's training-time test, by what it is for: tokens after the first, drafted from the network's own features.

In the toy text a token follows from the last but one, so from the second drafted token on the network needs what its
own output carries. A network that was trained on true features only is right about the first token and lost behind it.
"""

import numpy as np
import torch

from outdraft.core.params import SamplingParams
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.decode.step import Parts
from outdraft.drafters.eagle.net import save_eagle
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.testing.reference_rule import ConstantPolicy, ReferenceRule
from outdraft.testing.subject import run
from outdraft.training.data import Sampler, Stream
from outdraft.training.eagle import Eagle, EagleTraining, new_eagle
from outdraft.training.loop import Loop
from outdraft.training.pretrain import NextToken
from outdraft.training.team import Team
from tests.training.toys import VOCAB, toy_config, toy_decoder

DEPTH = 3


def interleaved(seed: int) -> Sampler:
    """Two texts, token by token in turn: each token follows from the one before the last."""
    rng = np.random.default_rng(7)
    follow = rng.integers(VOCAB, size=(VOCAB, 2))
    ids = [0, 1]
    for choice in rng.choice(2, size=20_000, p=[0.8, 0.2]):
        ids.append(int(follow[ids[-2], choice]))
    return Sampler([Stream(name="toy", ids=np.array(ids, np.uint16), weight=1.0, starts=None)], seed)


def learn(objective, folder, steps):
    Loop(
        objective, interleaved(0), interleaved(1), toy_config(steps=steps), folder, Team(), lambda line: None
    ).run()  # fmt: skip


def acceptance_by_position(target, folder):
    """Of greedy chains of DEPTH tokens, by the drafter that users name."""
    target.set_exact(True)
    method, runner = find("drafter", "eagle"), Runner(target)
    drafter = method.build(make_options(method, {"model": str(folder), "width": 1}), runner.port)
    policy = ConstantPolicy(Budget(depth=DEPTH))
    engine = Engine(Parts(target=runner, drafter=drafter, verifier=ReferenceRule(), policy=policy))
    prompts = interleaved(5).rows(0, 0, 12, 12).tolist()
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    outcomes = run(engine, [Request(prompt_token_ids=tuple(prompt), params=params) for prompt in prompts])
    reached, missed = (
        [sum(getattr(one.stats, name)[position] for one in outcomes) for position in range(1, DEPTH + 1)]
        for name in ("reached", "first_rejection")
    )
    return [1 - wrong / times for times, wrong in zip(reached, missed, strict=True)]


def test_tokens_after_the_first_are_learned(tmp_path):
    target = toy_decoder(1)
    learn(NextToken(target), tmp_path / "target", 120)
    options = EagleTraining(
        taps=(0, 1, 3), num_heads=2, num_kv_heads=1, head_dim=8, intermediate_size=32, num_steps=DEPTH
    )  # fmt: skip
    net = new_eagle(options, target.requires_grad_(False), 0)
    learn(Eagle(net, target, options), tmp_path / "run", 60)
    save_eagle(net, tmp_path / "eagle")
    with torch.inference_mode():
        found = acceptance_by_position(target, tmp_path / "eagle")
    assert min(found) > 0.6, found
