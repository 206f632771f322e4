"""No key of a config.json is read untested: each is at another value somewhere, or in the list below with a reason."""

from collections import defaultdict

import pytest
import transformers
from models.test_families import KEYS
from models.test_parity import CASES
from models.test_real_configs import INERT

from outdraft.models.families.catalogue import ARCHITECTURES
from outdraft.models.families.shared.fields import Fields
from outdraft.models.files.load import find_architecture
from outdraft.options.errors import ModelLoadError

CALLED = {"gemma3_text": "gemma3"}  # model_type -> its name in KEYS and CASES
AS_QWEN3 = "qwen3_vl_text"  # read by the reader of qwen3
REASONS = {  # of every family
    "bos_token_id": "no arithmetic; tests/codecs and tests/engine read it",
    "eos_token_id": "no arithmetic; tests/codecs and tests/engine read it",
    "rope_theta": "an older place of rope_parameters' (test_parity, the older spelling)",
    "rope_scaling": "an older name of rope_parameters (test_parity, the older spelling)",
    "partial_rotary_factor": "where it means anything, rope_parameters has it too (phi3, glm4)",
    "original_max_position_embeddings": "a part of rope_parameters, which Phi-3 has beside it (phi3-long)",
}
OWN_REASONS = {
    ("gemma2", "cache_implementation"): "looked at and without meaning here",
    ("gemma2", "hidden_act"): "an older name of hidden_activation, which stands in the same files",
    ("gemma3", "hidden_act"): "an older name of hidden_activation, which stands in the same files",
    ("gemma2", "sliding_window_pattern"): "layer_types says it; transformers writes no longer this key",
    ("gemma3", "sliding_window_pattern"): "layer_types says it; transformers writes no longer this key",
    ("cohere2", "sliding_window_pattern"): "layer_types says it; transformers writes no longer this key",
    ("gemma2", "use_bidirectional_attention"): "refused where it is true",
    ("gemma3", "use_bidirectional_attention"): "refused where it is true",
    ("gemma3", "attn_logit_softcapping"): "refused where there is a value",
    ("gemma3", "rope_local_base_freq"): "an older place of rope_parameters' theta of layers with a window",
    ("phi3", "attention_bias"): "looked at: the published code has no biases, whatever the file says",
    ("cohere2", "rms_norm_eps"): "looked at: the norm's epsilon is layer_norm_eps",
    ("cohere2", "order_of_interleaved_layers"): "looked at and without meaning here",
    ("cohere2", "rotary_pct"): "looked at and without meaning here",
    ("exaone4", "sliding_window_pattern"): "layer_types says it; transformers writes no longer this key",
    ("smollm3", "max_window_layers"): "without meaning where no layer has a window, else refused (test_real_configs)",
    ("smollm3", "no_rope_layer_interval"): "no_rope_layers says it, and transformers writes both",
    **dict.fromkeys(
        [(family, "layer_types") for family in ("mistral", "ministral3", "phi3", "starcoder2")],
        "transformers gives every layer the window; what `save_model` writes for a model of ours (test_parity)",
    ),
    ("starcoder2", "rms_norm_eps"): "looked at: the norm's epsilon is norm_epsilon",
    ("gpt2", "n_ctx"): "an older name of n_positions",
}


def family_of(kind):
    return CALLED.get(kind, kind)


@pytest.fixture(scope="module")
def asked():
    """family -> the keys that are asked for while the configurations of its cases are read."""
    found, readers = defaultdict(set), []
    with pytest.MonkeyPatch.context() as patch:
        init = Fields.__init__

        def noted(self, raw):
            init(self, raw)
            readers.append(self)

        patch.setattr(Fields, "__init__", noted)
        for kind, options in CASES.values():
            raw = transformers.AutoConfig.for_model(kind, **options).to_dict()
            find_architecture(raw).read(raw)
            found[family_of(kind)] |= {key for reader in readers for key in reader.used}
            readers.clear()
    return found


def names_in(value):
    """Keys of a table and of the tables in it."""
    if not isinstance(value, dict):
        return set()
    return set(value) | {name for inner in value.values() for name in names_in(inner)}


TURNED = {  # parts of rope_parameters, which one reader reads for all families
    name
    for options in (*(options for _, options in CASES.values()), *KEYS.values())
    for key in ("rope_parameters", "rope_scaling")
    for name in names_in(options.get(key))
}


def test_every_family_has_cases(asked):
    assert set(asked) | {AS_QWEN3} == {family_of(kind) for kind in ARCHITECTURES}


@pytest.mark.parametrize("family", sorted({family_of(kind) for kind in ARCHITECTURES} - {AS_QWEN3}))
def test_every_key_that_is_read_is_tested_or_has_its_reason(family, asked):
    tested = set(KEYS.get(family, ())) | TURNED | set(INERT.get(family, ()))
    tested |= {key for kind, options in CASES.values() if family_of(kind) == family for key in options}
    reasons = set(REASONS) | {key for name, key in OWN_REASONS if name == family}
    left = asked[family] - tested - reasons
    assert not left, f"put {sorted(left)} of {family} into KEYS (test_families.py), or say here why not"
    stale = {key for name, key in OWN_REASONS if name == family} & (tested | (reasons - asked[family]))
    assert not stale, f"{sorted(stale)} of {family} need no reason any more"


UNSAID = {"bos_token_id", "eos_token_id"}  # no ids are made up, which another vocabulary may not have
COMPARED = {"model_type", "num_key_value_heads"}  # a wrong number of heads is refused by the shapes of the tensors


@pytest.mark.parametrize("family", ARCHITECTURES)
def test_a_key_that_is_left_out_means_what_it_means_in_transformers(family):
    kind = find_architecture({"model_type": family})
    whole = transformers.AutoConfig.for_model(family).to_dict()
    for key in sorted(set(whole) - UNSAID - COMPARED):
        left = {name: value for name, value in whole.items() if name != key}
        given = {name: value for name, value in left.items() if name != "model_type"}
        try:
            ours = kind.read(left)
        except ModelLoadError as error:
            assert f"lacks '{key}'" in str(error)
        else:
            assert ours == kind.read(transformers.AutoConfig.for_model(family, **given).to_dict()), key
