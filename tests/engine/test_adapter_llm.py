"""`LLM` over a model of transformers that outdraft does not compute itself: the same text whatever drafts; refusals."""

import json
import logging

import pytest
import torch
from models import foreign

from outdraft import LLM, SamplingParams
from outdraft.engine.assembly.variant import network_of, runner_of
from outdraft.models.files.load import save_model
from outdraft.models.target.open_network import load_network
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config

pytest.importorskip("transformers")

PROMPTS = [{"prompt_token_ids": [5, 6, 7, 8, 5, 6, 7]}, {"prompt_token_ids": [9, 3, 4]}]
GREEDY = SamplingParams(max_tokens=14, ignore_eos=True)
SEEDED = SamplingParams(max_tokens=14, temperature=0.6, seed=3, ignore_eos=True)


@pytest.fixture(scope="module", params=["qwen3_moe", "gpt_oss"])
def target(request, tmp_path_factory):
    """A directory, and an engine without a drafter over it."""
    directory = foreign.write_model(request.param, tmp_path_factory.mktemp(request.param))
    return directory, LLM(directory, drafter="none")


@pytest.fixture(scope="module")
def alone(target):
    """What the engine without a drafter writes of each prompt by itself, greedy and seeded."""
    return [[target[1].generate(one, params).token_ids for one in PROMPTS] for params in (GREEDY, SEEDED)]


def drafting(plain, drafter, directory):
    options = {} if drafter == "ngram" else {"model": str(directory)}
    return plain.with_drafter({"name": drafter, **options}, policy="fixed", num_speculative_tokens=4)


@pytest.mark.parametrize(("drafter", "is_seeded"), [("ngram", True), ("draft_model", False), ("sequoia", True)])
def test_same_text_whatever_drafts(drafter, is_seeded, target, alone):
    """Decoded together with drafts, and alone without: rows are exact, so it is the same to the bit."""
    got = drafting(target[1], drafter, target[0]).generate(PROMPTS, SEEDED if is_seeded else GREEDY)
    assert [one.token_ids for one in got] == alone[is_seeded]
    assert drafter == "ngram" or sum(one.stats.num_accepted_tokens for one in got) > 10


@pytest.mark.parametrize(
    ("family", "drafter"),
    [
        ("mixtral", "sequoia"),
        ("deepseek_v3", "draft_model"),
        ("glm4_moe", "ngram"),
        ("gemma4_text", "sequoia"),
        ("opt", "draft_model"),
    ],
)
def test_greedy_text_of_other_families_is_their_own(family, drafter, tmp_path):
    """That of transformers' own eager attention, and the same to the bit with look-ups, a draft model or a tree."""
    directory = foreign.write_model(family, tmp_path)
    plain = LLM(directory, drafter="none")
    assert plain.config["model_impl"] == "transformers" and plain.config["exact"]
    wanted = [plain.generate(one, GREEDY).token_ids for one in PROMPTS]
    for prompt, text in zip(PROMPTS, wanted, strict=True):
        ids = torch.tensor([*prompt["prompt_token_ids"], *text])
        assert foreign.own_logits(directory, ids)[-len(text) - 1 : -1].argmax(-1).tolist() == list(text)
    got = drafting(plain, drafter, directory).generate(PROMPTS, GREEDY)
    assert [one.token_ids for one in got] == wanted
    assert drafter == "ngram" or sum(one.stats.num_accepted_tokens for one in got) > 10


@pytest.mark.parametrize("options", [{"select": "snapkv"}, {"select": "streaming"}, {}])
def test_drafters_that_look_at_queries_draft_too(options, target):
    """MagicDec chooses rows by the queries of all heads, TriForce by chunks of keys; gpt-oss has attention sinks."""
    directory, plain = target
    if options:
        chosen = {"budget": 10, "sinks": 2, "observe": 3, "refresh": 4, **options}
        made = plain.with_drafter({"name": "magicdec", **chosen}, policy="fixed", num_speculative_tokens=3)
    else:
        chosen = {"draft": {"method": "draft_model", "model": str(directory)}, "budget": 10, "chunk": 2, "refresh": 4}
        made = plain.with_drafter({"name": "triforce", **chosen})
    prompt = {"prompt_token_ids": [(7 * i) % 59 + 1 for i in range(24)]}
    got = made.generate(prompt, GREEDY)
    assert got.token_ids == plain.generate(prompt, GREEDY).token_ids and got.stats.num_accepted_tokens > 3


def test_a_model_whose_tree_rows_differ_from_its_paths_is_not_exact(tmp_path):
    """Gemma 3n mixes rows in a pass. Here is what exactness was asked for, and what the network found on its trial."""
    directory = foreign.write_model("gemma3n_text", tmp_path)
    llm = LLM(directory, drafter="none", exact=True)
    assert not network_of(llm.engine.parts).exact
    assert (llm.config["exact"], llm.config["guard"]) == (False, 1e-3)
    assert not runner_of(llm.engine.parts).port.facts.exact


def test_what_runs_is_logged(target, caplog):
    directory, plain = target
    assert plain.config["model_impl"] == "transformers" and plain.config["exact"]
    with caplog.at_level(logging.WARNING, "outdraft"):
        made = LLM(directory, kv_cache="paged", kv_cache_dtype="int8", drafter="ngram")
    assert "runs through transformers, more slowly" in caplog.text
    assert len(made.generate(PROMPTS[0], GREEDY).token_ids) == 14


def test_half_precision_writes_the_same_text_too(target):
    llm = LLM(target[0], dtype="bfloat16", drafter="ngram", policy="fixed", num_speculative_tokens=4)
    assert llm.config["exact"] and llm.config["guard"] == 0
    wanted = [llm.generate(one, SEEDED, num_speculative_tokens=0).token_ids for one in PROMPTS]
    assert [one.token_ids for one in llm.generate(PROMPTS, SEEDED)] == wanted


def test_where_rows_are_not_exact_the_guard_stands(target):
    llm = LLM(target[0], exact=False)
    assert (llm.config["exact"], llm.config["guard"]) == (False, 1e-3)
    assert llm.config["drafter"]["name"] != "none"
    assert LLM(target[0], exact=False, dtype="bfloat16").config["drafter"]["name"] == "none"


@pytest.mark.parametrize("drafter", ["draft_verify", "early_exit", "swift", "on_the_fly_skip"])
def test_drafters_that_take_layers_apart_are_refused_by_name(drafter, target):
    with pytest.raises(CapabilityError, match=f"drafter '{drafter}': model_type=.* whole passes only"):
        target[1].with_drafter(drafter)


def test_words_that_do_not_fit_are_refused(target, tmp_path):
    directory = target[0]
    with pytest.raises(ModelLoadError, match=r"is not supported here .*decoded through transformers"):
        LLM(directory, model_impl="outdraft")
    with pytest.raises(ConfigError, match=r"model_impl='transformer' is not known, did you mean 'transformers'?"):
        LLM(directory, model_impl="transformer")
    with pytest.raises(ConfigError, match="weights_memory is for models that outdraft computes itself"):
        LLM(directory, model_impl="transformers", weights_memory="1MiB")
    with pytest.raises(CapabilityError, match="where outdraft rounds no weights"):
        LLM(directory, precision="mixed")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=r"m.gguf is a GGUF file: leave model_impl out"):
        load_network(tmp_path / "m.gguf", model_impl="transformers")


def test_a_model_of_ours_on_wish(tmp_path):
    decoder = random_decoder(tiny_config("qwen3"), dtype=torch.float32)
    save_model(decoder, tmp_path)
    prompt = {"prompt_token_ids": [5, 6, 7, 8]}
    own, theirs = (LLM(tmp_path, drafter="none", model_impl=impl) for impl in ("auto", "transformers"))
    assert (own.config["model_impl"], theirs.config["model_impl"]) == ("outdraft", "transformers")
    assert own.generate(prompt, GREEDY).token_ids == theirs.generate(prompt, GREEDY).token_ids


def test_info_tells_who_runs_it(target, tmp_path):
    from outdraft.cli.commands.info import look

    told = look(str(target[0]))["model"]
    assert told["runs through"].startswith("transformers") and told["layers"] == 4
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba2"}))
    with pytest.raises(ModelLoadError, match="recurrent layers"):
        look(str(tmp_path))
