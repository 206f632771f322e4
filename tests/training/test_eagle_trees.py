"""EAGLE-2's dynamic tree accepts at least as much as EAGLE-1's static one of as many nodes, with one draft for both."""

from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.features.static_tree import STATIC
from outdraft.engine.llm import LLM
from outdraft.models.files.load import save_model
from outdraft.options.params import SamplingParams

from .toys import draft_loop, draft_objective, rows, trained_target


def test_the_dynamic_tree_accepts_at_least_as_much_as_the_static_one(tmp_path):
    target = trained_target(steps=40)
    save_model(target, tmp_path / "model")
    method = find_learner("eagle1")
    learner = method.new(method.options(noise=0.0), target, 0)
    draft_loop(draft_objective(learner, target), tmp_path / "run", steps=60).run()
    learner.save(tmp_path / "draft")
    prompts = [{"prompt_token_ids": row} for row in rows(16, 4).tolist()]
    asked = [SamplingParams(max_tokens=30, temperature=0.0, seed=seed) for seed in range(len(prompts))]
    tau = {}
    for tree in ("static", "dynamic"):
        drafter = {"name": "eagle1", "model": str(tmp_path / "draft"), "tree": tree, "nodes": len(STATIC), "width": 10}
        llm = LLM(tmp_path / "model", drafter=drafter, policy="fixed", num_speculative_tokens=5, dtype="float32")
        told = [one.stats for one in llm.generate(prompts, asked)]
        tau[tree] = sum(one.num_tokens for one in told) / sum(one.num_steps for one in told)
        assert all(one.num_draft_tokens <= len(STATIC) * one.num_drafted_steps for one in told)
    assert tau["dynamic"] >= tau["static"] > 3, tau
