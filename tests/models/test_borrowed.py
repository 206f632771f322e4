"""A draft model stored without its target's tables: smaller, the same bit for bit, and for that target alone."""

import json

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.drafters.draft_model.learn import LEARN, DraftLearning
from outdraft.models.files.borrowed import BORROWED
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.cut import cut_decoder
from outdraft.models.target.tables import tables_of
from outdraft.nn.packed import PackedContext
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config, tiny_model
from outdraft.weights.safetensors import SINGLE, TensorStore

FEW = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
VOCAB, WIDTH = 61, 32


def target_of(tied: bool, seed: int, dtype: torch.dtype = torch.float32) -> Decoder:
    return random_decoder(tiny_config("llama", layers=4, tie=tied), seed=seed, dtype=dtype)


def logits(decoder: Decoder) -> torch.Tensor:
    ids, places = torch.arange(20) % VOCAB, torch.arange(20)
    return decoder(ids, places, PackedContext(1, 20, torch.zeros(1, 20, dtype=torch.long)))


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gpt_neox"])
def test_it_is_smaller_by_the_tables_and_the_same(tmp_path, architecture):
    target = tiny_model(architecture, layers=3, dtype=torch.float32)
    tied = target.config.tie_embeddings
    draft = cut_decoder(target, (0, 2), torch.float32)
    draft.eval()
    save_model(draft, tmp_path / "whole")
    save_model(draft, tmp_path / "small", borrowed=["embedding"] if tied else ["embedding", "head"])
    sizes = [(tmp_path / name / SINGLE).stat().st_size for name in ("whole", "small")]
    tables = VOCAB * WIDTH * 4 * (1 if tied else 2)
    assert tables <= sizes[0] - sizes[1] < tables + 512, "by the tables, and what a header says of them"
    with pytest.raises(ModelLoadError, match=r"draft without embedding.*load it beside that target"):
        load_model(tmp_path / "small")
    loaded = load_model(tmp_path / "small", tables=tables_of(target))
    assert torch.equal(logits(loaded), logits(load_model(tmp_path / "whole")))


@pytest.mark.parametrize("tied", [False, True])
def test_a_learner_saves_it_and_an_engine_takes_the_tables_of_its_target(tmp_path, tied):
    target = target_of(tied, seed=3)
    save_model(target, tmp_path / "target")
    learner = LEARN.new(DraftLearning(borrow=True, layers=(0, 1, 2, 3)), target, 0)
    trained = {name for name, one in learner.module.named_parameters() if one.requires_grad}
    assert trained and not trained & {"embedding", "lm_head.weight"}, "what is the target's does not learn"
    learner.save(tmp_path / "draft")
    assert not set(TensorStore(tmp_path / "draft")) & {"model.embed_tokens.weight", "lm_head.weight"}
    assert {*json.loads((tmp_path / "draft/config.json").read_text())[BORROWED]} == (
        {"embedding"} if tied else {"embedding", "head"}
    )

    LEARN.load(DraftLearning(), target, tmp_path / "draft").save(tmp_path / "again")
    assert (tmp_path / "again" / SINGLE).read_bytes() == (tmp_path / "draft" / SINGLE).read_bytes()
    save_model(learner.module, tmp_path / "whole")
    texts = []
    for name in ("draft", "whole"):
        llm = LLM(tmp_path / "target", drafter="draft_model", draft_model=tmp_path / name, num_speculative_tokens=3)
        texts.append(llm.generate({"prompt_token_ids": [1, 2, 3]}, FEW))
    assert texts[0].token_ids == texts[1].token_ids
    assert texts[0].sources == texts[1].sources and texts[0].stats.num_steps < 12, "what it drafts is the same"


def test_another_target_is_refused_by_name(tmp_path):
    target = target_of(False, seed=3)
    save_model(target_of(False, seed=4), tmp_path / "other")
    LEARN.new(DraftLearning(borrow=True, layers=(0,)), target, 0).save(tmp_path / "draft")
    with pytest.raises(ModelLoadError, match=r"draft borrows the embedding of the target.*/other has another"):
        LLM(tmp_path / "other", drafter="draft_model", draft_model=tmp_path / "draft")
    one_table = target_of(False, seed=3)
    with torch.no_grad():
        one_table.lm_head.weight += 1
    with pytest.raises(ModelLoadError, match="borrows the head"):
        load_model(tmp_path / "draft", tables=tables_of(one_table))


def test_the_number_format_of_the_target_does_not_matter(tmp_path):
    save_model(target_of(False, seed=3), tmp_path / "target")
    learned_with = load_model(tmp_path / "target", "bfloat16")
    LEARN.new(DraftLearning(borrow=True, layers=(0,)), learned_with, 0).save(tmp_path / "draft")
    wide = load_model(tmp_path / "target", "float32")
    assert load_model(tmp_path / "draft", "float32", tables=tables_of(wide)).embedding.equal(wide.embedding)


def test_it_is_converted_to_a_whole_model(tmp_path):
    target = target_of(False, seed=3)
    learner = LEARN.new(DraftLearning(borrow=True, layers=(0,)), target, 0)
    learner.save(tmp_path / "draft")
    (layout,) = LEARN.formats
    save_model(layout.read(tmp_path / "draft", target, None), tmp_path / "whole")
    assert torch.equal(logits(load_model(tmp_path / "whole")), logits(learner.module.eval()))


def test_a_declaration_that_is_none(tmp_path):
    save_model(target_of(False, seed=3), tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    for declared in ("all", {}, {"norm": "00"}):
        (tmp_path / "config.json").write_text(json.dumps({**raw, BORROWED: declared}))
        with pytest.raises(ModelLoadError, match="must name tables of embedding, head"):
            load_model(tmp_path)
    with pytest.raises(ConfigError, match="borrow=true"):
        sizes = dict.fromkeys(("hidden_size", "num_layers", "num_heads", "num_kv_heads", "intermediate_size"), 4)
        LEARN.new(DraftLearning(borrow=True, **sizes), target_of(False, seed=3), 0)
