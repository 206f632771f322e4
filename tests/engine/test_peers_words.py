"""What users of other engines write: their first programs, their names of things, and what is said of the others."""

import asyncio
import logging
from pathlib import Path

import pytest

from outdraft import LLM, SamplingParams, zoo
from outdraft.drafters.draft_model import METHOD as DRAFT
from outdraft.engine.callers import progress
from outdraft.engine.naming.speculative_config import from_mapping
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError, RequestError
from outdraft.options.params import seed_of_text

TARGET, SMALL = str(zoo.path("target")), str(zoo.path("draft"))
CONFIGS = {
    "draft model": {"model": SMALL, "num_speculative_tokens": 5, "method": "draft_model"},
    "draft model, its method inferred": {"model": SMALL, "num_speculative_tokens": 5},
    "n-gram": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4},
    "suffix": {"method": "suffix", "num_speculative_tokens": 32},
    "eagle": {
        "model": str(zoo.path("eagle")),
        "draft_tensor_parallel_size": 1,
        "num_speculative_tokens": 2,
        "method": "eagle",
    },
    "eagle 3": {
        "model": str(zoo.path("eagle")),
        "draft_tensor_parallel_size": 2,
        "num_speculative_tokens": 2,
        "method": "eagle3",
    },
    "suffix on the second runner": {
        "method": "suffix",
        "num_speculative_tokens": 8,
        "enable_adaptive_verification": True,
    },
    "another vocabulary": {
        "method": "draft_model",
        "model": str(zoo.path("foreign_draft")),
        "num_speculative_tokens": 3,
        "use_heterogeneous_vocab": True,
    },
}
PROGRAM = """
from outdraft import LLM, SamplingParams

prompts = ["The future of AI is"]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
llm = LLM(model=TARGET, tensor_parallel_size=1, speculative_config=CONFIG)
outputs = llm.generate(prompts, sampling_params)
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs[0].text
    shown.append(f"Prompt: {prompt!r}, Generated text: {generated_text!r}")
"""


@pytest.fixture(scope="module")
def llm(model_dir: Path) -> LLM:
    return LLM(model_dir, dtype="float32")


@pytest.mark.parametrize("name", CONFIGS)
def test_first_programs_run_as_they_are(name: str):
    shown: list[str] = []
    exec(PROGRAM, {"TARGET": TARGET, "CONFIG": CONFIGS[name], "shown": shown})
    (line,) = shown
    begins = "Prompt: 'The future of AI is', Generated text: "  # and then either quote, as the text needs
    assert line.startswith(begins) and len(line) > len(begins) + 2


def test_the_first_program_runs_with_a_draft_model():
    shown: list[str] = []
    words = "draft_model=SMALL, num_speculative_tokens=5"
    program = PROGRAM.replace("speculative_config=CONFIG", words)
    assert words in program
    exec(program, {"TARGET": TARGET, "SMALL": SMALL, "shown": shown})
    assert len(shown) == 1


NOTED = [
    ({"tensor_parallel_size": 2}, "tensor_parallel_size=2 changes nothing here: one device"),
    ({"trust_remote_code": True}, "no code of a model's repository is run"),
    ({"gpu_memory_utilization": 0.9}, "gpu_memory_utilization=0.9 changes nothing here"),
    ({"speculative_config": {"method": "ngram", "attention_backend": "X"}}, "attention_backend='X' changes nothing"),
    ({"speculative_config": {"method": "ngram", "draft_tensor_parallel_size": 2}}, "speculative_config: draft_tensor"),
    (
        {"speculative_config": {"method": "ngram", "disable_by_batch_size": 8}},
        "disable_by_batch_size=8 changes nothing",
    ),
    ({"speculative_config": {"method": "ngram", "disable_eagle_block_drop": True}}, "so none are dropped"),
    ({"speculative_config": {"method": "ngram", "index_share_for_mtp_iteration": True}}, "no index to share"),
    ({"use_v2_block_manager": True}, "use_v2_block_manager=True changes nothing here: memory is taken"),
    ({"async_scheduling": True, "compilation_config": 3}, "compilation_config=3 changes nothing here: kernels"),
]


@pytest.mark.parametrize(("words", "said"), NOTED)
def test_what_means_nothing_is_noted(model_dir: Path, caplog: pytest.LogCaptureFixture, words: dict, said: str):
    with caplog.at_level(logging.WARNING, "outdraft.notes"):
        LLM(model_dir, **words)
    assert said in caplog.text


def test_what_was_not_asked_for_is_not_noted(model_dir: Path, caplog: pytest.LogCaptureFixture):
    LLM(model_dir, tensor_parallel_size=1, trust_remote_code=False, gpu_memory_utilization=None)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"seed": 0}, "takes no seed=0: a seed belongs to a request"),
        ({"quantization": "awq"}, "outdraft quantize"),
        ({"torch_dtype": "bfloat16"}, "takes no torch_dtype='bfloat16': here it is called dtype"),
        ({"device_map": "auto"}, "here it is called device"),
        ({"n_ctx": 512}, "here it is called max_model_len"),
        ({"speculative_config": {"method": "ngram", "synthetic_acceptance_length": 2}}, "cannot be forced"),
        ({"speculative_config": {"method": "ngram", "synthetic_acceptance_rate": 0.5}}, "cannot be forced"),
        ({"speculative_config": {"method": "ngram", "posterior_threshold": 0.1}}, "rejection_sample_method= names"),
        ({"speculative_config": {"method": "ngram", "temperature": 0.5}}, "it belongs to a request"),
        ({"speculative_config": {"method": "ngram", "tensor_parallel_size": 2}}, "one device is used"),
        ({"speculative_config": {"method": "ngram", "rejection_sample_method": "fly"}}, "lists the lossy rules"),
        ({"speculative_config": {"method": "ngram", "parallel_drafting": True}}, "parallel_drafting=True"),
        ({"speculative_config": {"method": "ngram", "prompt_lookup_mx": 3}}, "did you mean 'prompt_lookup_max'"),
        ({"speculative_config": {"method": "draft_model", "draft_sample_method": "soft"}}, "greedy or probabilistic"),
        (
            {"speculative_config": {"method": "ngram", "draft_sample_method": [1]}},
            "draft_sample_method=[1] must be a text",
        ),
        ({"speculative_config": {"method": "jetspec", "model": SMALL}}, "method='jetspec': this head of a block"),
        ({"speculative_config": {"method": "peagle", "model": SMALL}}, "heads that write several tokens in one pass"),
        ({"speculative_config": {"method": "mlp_speculator", "model": SMALL}}, "such networks are not read"),
        ({"speculative_config": {"method": "custom_class", "model": "a.B"}}, "'package.module:METHOD'"),
        ({"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}, "or published (docs/convert.md)"),
    ],
)
def test_what_would_change_the_text_is_refused_with_the_cure(model_dir: Path, words: dict, said: str):
    with pytest.raises(ConfigError) as error:
        LLM(model_dir, **words)
    assert said in str(error.value)


@pytest.mark.parametrize("rule", ["standard", "strict", "probabilistic", None])
def test_every_exact_rule_of_vllm_is_the_default_here(rule: str | None):
    words = {"method": "ngram", "num_speculative_tokens": 3} | ({"rejection_sample_method": rule} if rule else {})
    assert from_mapping(words).verifier == "auto"


def test_keys_of_vllm_are_options_here():
    suffix = {"suffix_decoding_max_tree_depth": 24, "suffix_decoding_max_cached_requests": 5}
    suffix |= {"suffix_decoding_max_spec_factor": 2.0, "suffix_decoding_min_token_prob": 0.2}
    read = from_mapping({"method": "suffix", **suffix})
    assert read.drafter_options == suffix
    assert from_mapping({"method": "ngram_gpu"}).drafter == "ngram"
    for family in ("deepseek", "glm4_moe", "gemma4", "qwen4_exp", "hy_v4"):
        assert from_mapping({"method": f"{family}_mtp"}).drafter == "mtp"
    read = from_mapping({"method": "draft_model", "model": SMALL, "draft_sample_method": "probabilistic"})
    assert read.drafter_options == {"model": SMALL, "sample": "match"}
    assert from_mapping({"method": "ngram", "draft_sample_method": "greedy"}).drafter_options == {}


@pytest.mark.parametrize("method", [{"method": "draft_model"}, {}])
def test_a_draft_of_another_vocabulary_is_another_method(method: dict):
    read = from_mapping({**method, "model": SMALL, "use_heterogeneous_vocab": True})
    assert read.drafter == "vocab_map" and read.drafter_options == {"model": SMALL}
    assert from_mapping({**method, "model": SMALL, "use_heterogeneous_vocab": False}).drafter == DRAFT.name
    with pytest.raises(ConfigError, match="use_heterogeneous_vocab=True"):
        from_mapping({"method": "ngram", "use_heterogeneous_vocab": True})


def test_a_head_is_found_by_either_word_of_its_family():
    """vLLM calls each of them eagle3 or eagle; which one it is stands in the directory."""
    ours, published = str(zoo.path("eagle")), str(Path(__file__).parents[1] / "peers/eagle3/plain")
    for word in ("eagle", "eagle3", None):
        for place, method in ((ours, "eagle"), (published, "eagle3")):
            config = {"model": place} | ({"method": word} if word else {})
            assert from_mapping(config).drafter == method


def test_a_name_on_the_hub_says_what_it_is_as_well(monkeypatch: pytest.MonkeyPatch):
    kept = {"owner/draft": SMALL, "owner/head": str(zoo.path("eagle"))}
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **words: kept[name])
    read = from_mapping({"model": "owner/draft", "num_speculative_tokens": 5})
    assert read.drafter == DRAFT.name and read.drafter_options == {"model": "owner/draft"}
    assert from_mapping({"model": "owner/head", "method": "eagle3"}).drafter == "eagle"
    with pytest.raises(ModelLoadError, match="neither a directory nor in the Hugging Face cache"):
        from_mapping({"model": "owner/else"})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"drafter": {"name": "eagle3", "model": "zoo:eagle"}}, "is for the method 'eagle'"),
        ({"drafter": {"name": "eagle", "model": SMALL}}, "is for the method 'draft_model'"),
        ({"drafter": {"name": "medusa", "model": "zoo:eagle"}}, "is for the method 'eagle'"),
        ({"draft_model": "zoo:eagle"}, "holds a draft for the method 'eagle' and no model of its own"),
    ],
)
def test_a_draft_of_another_kind_is_refused_with_its_method(words: dict, said: str):
    with pytest.raises(ModelLoadError) as error:
        LLM(TARGET, **words)
    assert said in str(error.value)


def test_a_damaged_draft_is_not_sent_to_its_own_method(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"speculators_model_type": "outdraft_hydra", "model_type": "hydra"}')
    with pytest.raises(ModelLoadError, match="holds no Hydra heads") as error:
        LLM(TARGET, drafter={"name": "hydra", "model": str(tmp_path)})
    assert "is for the method" not in str(error.value)


def test_a_draft_is_no_target():
    with pytest.raises(ModelLoadError, match="a draft for the method 'eagle' and no model of its own"):
        LLM(str(zoo.path("eagle")))


def test_a_draft_is_named_by_a_path_too():
    place = zoo.path("eagle")
    for words in ({"model": place}, {"model": place, "method": "eagle"}):
        read = from_mapping(words)
        assert read.drafter == "eagle" and read.drafter_options == {"model": str(place)}


def test_what_is_not_there_or_damaged_is_said(tmp_path: Path):
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03")
    for words in ({}, {"method": "eagle"}):
        for place in (f"{tmp_path}/nope", tmp_path / "nope", "./nope"):
            with pytest.raises(ModelLoadError, match=r"nope' does not exist: give the place of a draft"):
                from_mapping({**words, "model": place})
        with pytest.raises(ModelLoadError, match=r"cut.gguf .*is no GGUF file, or cut short"):
            from_mapping({**words, "model": str(tmp_path / "cut.gguf")})


def test_what_is_not_known_is_said(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "mlp_speculator"}')
    with pytest.raises(ConfigError, match=r"does not say which drafter it is for: .*docs/convert.md"):
        from_mapping({"model": str(tmp_path)})


def test_sampling_params_by_either_name(llm: LLM):
    params = SamplingParams(max_tokens=5)
    assert llm.generate("abc", sampling_params=params).token_ids == llm.generate("abc", params).token_ids
    with pytest.raises(RequestError, match="two names of the same"):
        llm.generate("abc", params, sampling_params=params)


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ({"max_tokens": 3}, "generate(prompt, SamplingParams(max_tokens=...))"),
        ({"max_new_tokens": 3}, "SamplingParams(max_tokens=...)"),
        ({"do_sample": True}, "SamplingParams(temperature=...)"),
    ],
)
def test_a_setting_beside_the_prompt_is_answered_with_the_cure(llm: LLM, given: dict, cure: str):
    with pytest.raises(RequestError) as error:
        llm.generate("abc", **given)
    assert cure in str(error.value)


def test_a_result_has_what_vllms_users_look_for(llm: LLM):
    text, ids = llm.generate(["abc", {"prompt_token_ids": [1, 2]}], SamplingParams(max_tokens=4))
    assert text.prompt == "abc" and ids.prompt is None
    assert text.outputs == (text,) and text.outputs[0].text == text.text and text.index == 0
    assert llm.generate({"prompt": "abc"}, SamplingParams(max_tokens=4)).prompt == "abc"
    assert [one.prompt for one in llm.generate(iter(["a", "b"]), SamplingParams(max_tokens=2))] == ["a", "b"]


def test_several_texts_of_one_prompt(llm: LLM):
    params = SamplingParams(max_tokens=6, temperature=1.0, seed=4, n=3)
    first, second = llm.generate(["abc", "xyz"], params)
    assert [one.index for one in first.outputs] == [0, 1, 2] and len(second.outputs) == 3
    for prompt, result in (("abc", first), ("xyz", second)):
        for i, one in enumerate(result.outputs):
            alone = llm.generate(prompt, SamplingParams(max_tokens=6, temperature=1.0, seed=seed_of_text(4, i)))
            assert one.token_ids == alone.token_ids and one.prompt == prompt
    assert len({one.token_ids for one in first.outputs}) == 3
    unseeded = llm.generate("abc", SamplingParams(max_tokens=12, temperature=1.0, n=2))
    assert unseeded.outputs[0].token_ids != unseeded.outputs[1].token_ids


@pytest.mark.parametrize("n", [0, 1025])
def test_n_has_a_range(n: int):
    with pytest.raises(RequestError, match=f"n={n} is out of range: it must be between 1 and 1024"):
        SamplingParams(n=n, temperature=1.0)


def test_several_greedy_texts_are_refused():
    with pytest.raises(RequestError, match="set a temperature"):
        SamplingParams(n=2)


def test_several_texts_come_piece_by_piece_and_from_asyncio(llm: LLM):
    """The pieces of text i are those of `outputs[i]`, and every text moves on in turn."""
    params = SamplingParams(n=3, temperature=1.0, seed=4, max_tokens=48, ignore_eos=True)  # they begin one by one
    wanted = [one.text for one in llm.generate("abc", params).outputs]

    async def gathered() -> tuple[list, object]:
        return [one async for one in llm.astream("abc", params)], await llm.agenerate("abc", params)

    pieces, whole = asyncio.run(gathered())
    assert [one.text for one in whole.outputs] == wanted and [one.index for one in whole.outputs] == [0, 1, 2]
    for chunks in (list(llm.stream("abc", params)), pieces):
        texts = ["".join(chunk.text for chunk in chunks if chunk.index == i) for i in range(3)]
        assert texts == wanted and len(set(wanted)) == 3
        assert {chunk.index for chunk in chunks[: len(chunks) // 2]} == {0, 1, 2}
        assert sum(chunk.finish_reason is not None for chunk in chunks) == 3


def test_leaving_a_stream_of_several_texts_cancels_all(llm: LLM):
    stream = llm.stream("abc", SamplingParams(n=2, temperature=1.0, max_tokens=200, ignore_eos=True))
    next(stream)
    stream.close()
    assert llm.generate("abc", SamplingParams(max_tokens=2)).finish_reason == "length"
    assert not llm.engine.running and not llm.engine.waiting


def test_a_tokenizer_reads_back_what_it_wrote(llm: LLM):
    codec = llm.get_tokenizer()
    assert codec.decode(codec.encode("abc")) == "abc" and codec.eos_token_id == min(codec.eos_token_ids, default=None)


def test_a_with_block_ends_its_thread(model_dir: Path):
    with LLM(model_dir) as made:
        text = made.generate("abc", SamplingParams(max_tokens=3)).text
        beside = made.with_drafter("ngram")
        worker = made._thread._worker
    assert worker is not None and not worker.thread.is_alive()
    with pytest.raises(CapabilityError, match="this LLM is closed"):
        made.generate("abc")
    assert beside.generate("abc", SamplingParams(max_tokens=3)).text == text
    made.close()  # once more does no harm


def test_a_revision_is_of_a_hub_name(model_dir: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ModelLoadError, match="revision='main' chooses a version on the hub"):
        LLM(model_dir, revision="main")
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **words: asked.append(words) or str(model_dir)
    )
    LLM("owner/model", revision="v2")
    assert {words["revision"] for words in asked} == {"v2"}


def test_half_is_float16(model_dir: Path):
    assert LLM(model_dir, dtype="half").config["dtype"] == LLM(model_dir, dtype="float16").config["dtype"]


def test_a_bar_only_where_it_is_wanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    assert list(progress.counted(range(9), 9, wanted=None)) == list(range(9)) and capsys.readouterr().err == ""
    assert list(progress.counted(range(2), 2, wanted=True)) == [0, 1]
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown: list[int] = []
    monkeypatch.setattr("rich.progress.Progress.advance", lambda self, task: shown.append(task))
    for total in (progress.MANY - 1, progress.MANY):
        assert len(list(progress.counted(range(total), total, wanted=None))) == total
    assert len(shown) == progress.MANY
