"""The core promise on a quantized target: rows keep their bits in any pass, and drafts change no text."""

import pytest
import torch

from outdraft import LLM, SamplingParams
from outdraft.models.files.load import save_model
from outdraft.models.remake.quantize import quantize_decoder, quantized_names
from outdraft.nn.quant import QuantConfig
from outdraft.testing.tiny import tiny_model

FOUR = QuantConfig(bits=4, group_size=32, keep=("*.down",))
EIGHT = QuantConfig(bits=8, group_size=0, keep=())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("config", [FOUR, EIGHT], ids=lambda config: config.variant)
def test_a_row_has_the_bits_that_it_has_alone(config, dtype):
    model = quantize_decoder(tiny_model(dtype=dtype), config)
    assert model.exact and len(quantized_names(model)) == (7 if config is FOUR else 9)
    for name in quantized_names(model):
        linear = model.get_submodule(name)
        rows = torch.randn(33, linear.shape[1], generator=torch.Generator().manual_seed(0)).to(dtype)
        alone = torch.cat([linear(row[None]) for row in rows])
        for count in (2, 3, 5, 8, 16, 17, 32, 33):
            assert torch.equal(linear(rows[:count]), alone[:count]), (name, count)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_drafts_change_no_text_of_a_quantized_target(dtype, tmp_path):
    save_model(quantize_decoder(tiny_model(dtype=torch.float32, exact=False), FOUR), tmp_path)
    plain = LLM(str(tmp_path), drafter="none", dtype=dtype)
    assert plain.config["variant"] == "int4-g32-mixed" and plain.config["dtype"] == dtype
    drafted = plain.with_drafter({"name": "ngram", "max_ngram": 3}, num_speculative_tokens=5)
    prompts = [{"prompt_token_ids": ids} for ids in ([1, 2, 3, 1, 2, 3, 1], [7, 8, 7, 8, 7], list(range(40)))]
    for params in (SamplingParams(max_tokens=40), SamplingParams(max_tokens=40, temperature=0.8, seed=5)):
        alone = [plain.generate(prompt, params).token_ids for prompt in prompts]
        assert [made.token_ids for made in drafted.generate(prompts, params)] == alone
