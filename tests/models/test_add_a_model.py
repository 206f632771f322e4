"""The page docs/add_a_model.md works: its file, put among the families, computes what transformers does."""

import re
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from models.test_parity import SMALL, max_difference

from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.files.load import load_model, save_model
from outdraft.nn.context import CausalContext
from outdraft.testing.tiny import random_decoder, tiny_config
from tests.helpers.new_layers import Recurrence

PAGE = Path(__file__).parents[2] / "docs/add_a_model.md"


@torch.no_grad()
def test_the_file_of_the_page_loads_its_family(tmp_path, monkeypatch):
    shown: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], shown)
    monkeypatch.setitem(ARCHITECTURES, "seed_oss", shown["SEED_OSS"])
    torch.manual_seed(0)
    options = SMALL | dict(head_dim=32, attention_bias=True, attention_out_bias=True, mlp_bias=True)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model("seed_oss", **options), attn_implementation="eager"
    ).eval()
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * (0.2 if parameter.dim() == 2 else 0.1))
    model.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    assert max_difference(model, ours) < 1e-4
    save_model(ours, tmp_path / "ours")
    assert load_model(tmp_path / "ours").config == ours.config


def test_the_layer_of_the_page_is_the_one_that_is_proven():
    shown: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], shown)
    config = tiny_config(layers=2)
    ours, theirs = (
        random_decoder(replace(config, mixers=(kind(), None))) for kind in (shown["Recurrence"], Recurrence)
    )
    ids, context = torch.arange(9), CausalContext(1, 9)
    assert torch.equal(ours(ids, ids, context), theirs(ids, ids, context))


def test_the_page_names_files_and_tables_that_are_there():
    root = PAGE.parents[1]
    for name in re.findall(r"`((?:src|tests)/[\w/]+(?:\.py)?)`", PAGE.read_text()):
        assert (root / name).exists() or name.endswith("seed_oss.py"), name
    assert "KEYS = {" in (root / "tests/models/test_families.py").read_text()
    assert "FAMILIES = {" in (root / "tests/kernels/test_stack.py").read_text()
