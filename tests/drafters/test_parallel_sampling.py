"""Look-aheads for which memory has no room say nothing, and guesses go on in later rounds."""

import torch

from outdraft import LLM, SamplingParams
from outdraft.core.learner_registry import find_learner
from outdraft.models.files.load import load_model
from outdraft.weights.hub import resolve


def test_a_guess_that_memory_cuts_ends_no_speculation(tmp_path, caplog):
    learner = find_learner("parallel_sampling")
    learner.new(learner.options(), load_model(resolve("zoo:target"), torch.float32), 0).save(tmp_path)
    drafter = {"name": "parallel_sampling", "model": str(tmp_path)}
    prompts, params = ["It was late", "The cat sat", "One day he"], SamplingParams(max_tokens=60, ignore_eos=True)
    memory = {"kv_cache": "paged", "kv_cache_memory": "240KiB"}  # a quarter of what three texts and guesses take
    with LLM("zoo:target", drafter=drafter, num_speculative_tokens=4, **memory) as llm:
        cut = llm.generate(prompts, params, use_tqdm=False)
        plain = llm.generate(prompts, params, use_tqdm=False, speculative=False)
    assert [one.token_ids for one in cut] == [one.token_ids for one in plain]
    assert not caplog.records
    assert min(one.stats.num_drafted_steps for one in cut) > 25, "to the end of each text"
