"""The table "GGUF files" of docs/files_of_others.md, row by row: a small file of llama.cpp's converter, with the key.

*read*: the setting, or what becomes of a text, is what the key says. *refused*: an error names the key. *noted*: one
line of the log names it, and nothing else changes.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from page_rows import FILES_OF_OTHERS, rows_of

from outdraft.codecs.text import TextCodec
from outdraft.models.families.shared.fields import FULL, SLIDING
from outdraft.models.files.gguf import GgufModel
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ModelLoadError

FILES = Path(__file__).parents[1] / "models/converted"
ROWS = rows_of(FILES_OF_OTHERS, "GGUF files")
SPECIAL = ("<s>", "</s>", "<|im_end|>", "<u>", "<c>")
NAMES = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz", "\u0120", "th", "the", *"0123456789<>/_|!?.,:;'-+=*#$%&"][:64]
TEXT = "the fox <s> the <u> of <c></s> 12<|im_end|> x"
TALK = [{"role": "user", "content": "hi"}]
NORMAL, UNKNOWN, CONTROL, USER = 1, 2, 3, 4
Check = Callable[[Any], bool]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A converted file, and the value that the key gets in it (None: the key is left out). `beside`: further keys, in
    the file for comparison too, unless `alone`. `reads`: a setting of the config, or what holds of config or codec.
    `says`: words of the line or the error, where the key is none.
    """

    file: str = "llama"
    key: str = ""
    value: Any = None
    beside: dict[str, Any] = field(default_factory=dict)
    alone: bool = False
    reads: tuple[str, Any] | Check | None = None
    says: str = ""


VOCABULARY = {
    "tokenizer.ggml.tokens": NAMES,
    "tokenizer.ggml.merges": ["t h", "th e"],
    "tokenizer.ggml.bos_token_id": None,
    "tokenizer.ggml.eos_token_id": None,
    "tokenizer.ggml.token_type": None,
}
SPM = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [*NAMES[:31], "\u2581", *NAMES[32:]],
    "tokenizer.ggml.scores": [0.0] * 64,
}
TYPES = [CONTROL, UNKNOWN, NORMAL, USER, *[NORMAL] * 60]
YARN = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0}
LOGIT_SCALE = "logit_scale"


def scaling(name: str, value: Any) -> Check:
    return lambda config: config["rope_scaling"][name] == value


def ends(*ids: int) -> Check:
    return lambda codec: set(ids) <= codec.eos_token_ids and codec.decode(ids) == ""


def role(name: str) -> Case:
    return Case(value=5, reads=lambda codec: codec.special_tokens[f"{name}_token"] == NAMES[5])


def template(codec: TextCodec) -> list[str]:
    return [str(codec.apply_chat_template(TALK, tokenize=False, tools=tools)) for tools in (None, [])]


def kinds(config: Any) -> bool:
    return config["layer_types"] == [FULL, SLIDING] * 3 + [FULL]


CASES: dict[str, Case] = {
    "general.architecture": Case(key="general.architecture", value="mamba"),
    "general.type: adapter, imatrix, mmproj": Case(key="general.type", value="adapter", says="general.type='adapter'"),
    "general.quantization_version": Case(key="general.quantization_version", value=3),
    "general.sampling.*": Case(key="general.sampling.temp", value=0.5, says="general.sampling.temp=0.5"),
    "split.count": Case(key="split.count", value=3, says="3 parts"),
    "ARCH.context_length": Case(value=99, reads=("max_position_embeddings", 99)),
    "ARCH.embedding_length": Case(value=99, reads=("hidden_size", 99)),
    "ARCH.block_count": Case(value=9, reads=("num_hidden_layers", 9)),
    "ARCH.feed_forward_length": Case(value=99, reads=("intermediate_size", 99)),
    "ARCH.attention.head_count": Case(value=4, reads=("num_attention_heads", 4)),
    "ARCH.attention.head_count_kv": Case(value=2, reads=("num_key_value_heads", 2)),
    "ARCH.attention.key_length": Case(
        value=8, beside={"llama.attention.value_length": 8}, alone=True, reads=("head_dim", 8)
    ),
    "ARCH.attention.value_length": Case(value=8),
    "ARCH.attention.layer_norm_rms_epsilon": Case(value=0.5, reads=("rms_norm_eps", 0.5)),
    "ARCH.attention.causal": Case(value=False),
    "ARCH.rope.freq_base": Case(value=500.0, reads=("rope_theta", 500.0)),
    "ARCH.rope.dimension_count": Case(value=8, reads=("partial_rotary_factor", 0.5)),
    "ARCH.rope.scaling.type": Case(
        value="linear", beside={"llama.rope.scaling.factor": 2.0}, alone=True, reads=scaling("rope_type", "linear")
    ),
    "ARCH.rope.scaling.factor": Case(
        value=3.0, beside={"llama.rope.scaling.type": "linear"}, reads=scaling("factor", 3.0)
    ),
    "ARCH.rope.scaling.original_context_length": Case(
        value=16, beside=YARN, reads=scaling("original_max_position_embeddings", 16)
    ),
    "ARCH.rope.scaling.yarn_beta_fast": Case(value=8.0, beside=YARN, reads=scaling("beta_fast", 8.0)),
    "ARCH.rope.scaling.yarn_beta_slow": Case(value=2.0, beside=YARN, reads=scaling("beta_slow", 2.0)),
    "ARCH.rope.scaling.type: longrope": Case(
        key="llama.rope.scaling.type", value="longrope", says="llama.rope.scaling.type='longrope'"
    ),
    "ARCH.attention.key_length_swa, ARCH.attention.value_length_swa": Case(
        key="llama.attention.key_length_swa", value=8, says="llama.attention.key_length_swa=8"
    ),
    "ARCH.rope.dimension_count_swa": Case(value=8),
    "ARCH.attention.sliding_window": Case(value=7, reads=("sliding_window", 7)),
    "ARCH.expert_count": Case(value=8),
    "ARCH.nextn_predict_layers": Case(value=1),
    "ARCH.pooling_type": Case(value=3),
    "any other key of ARCH": Case(
        key="llama.rope.scaling.attn_factor", value=0.5, says="llama.rope.scaling.attn_factor=0.5"
    ),
    "gemma2.attn_logit_softcapping": Case(file="gemma2", value=9.0, reads=("attn_logit_softcapping", 9.0)),
    "gemma2.final_logit_softcapping": Case(file="gemma2", value=9.0, reads=("final_logit_softcapping", 9.0)),
    "gemma3.attention.sliding_window_pattern": Case(file="gemma3", value=[False, True] * 3 + [False], reads=kinds),
    "gemma3.rope.freq_base_swa": Case(
        file="gemma3", value=99.0, reads=lambda config: config["rope_parameters"][SLIDING]["rope_theta"] == 99.0
    ),
    "granite.attention.scale": Case(file="granite", value=0.5, reads=("attention_multiplier", 0.5)),
    "granite.embedding_scale": Case(file="granite", value=0.5, reads=("embedding_multiplier", 0.5)),
    "granite.residual_scale": Case(file="granite", value=0.5, reads=("residual_multiplier", 0.5)),
    "granite.logit_scale": Case(file="granite", value=0.5, reads=("logits_scaling", 0.5)),
    "granite.rope.scaling.finetuned": Case(file="granite", value=False),
    "cohere2.logit_scale": Case(file="cohere2", value=0.5, reads=(LOGIT_SCALE, 0.5)),
    "cohere2.attention.layer_norm_epsilon": Case(file="cohere2", value=0.5, reads=("layer_norm_eps", 0.5)),
    "mistral3.attention.temperature_scale": Case(
        file="mistral3", value=0.5, reads=scaling("llama_4_scaling_beta", 0.5)
    ),
    "mistral3.rope.scaling.yarn_log_multiplier": Case(file="mistral3", value=0.5, reads=scaling("mscale", 0.5)),
    "phi3.rope.scaling.attn_factor": Case(file="phi3-long", value=0.5, reads=scaling("attention_factor", 0.5)),
    "tokenizer.ggml.model": Case(value="bert", says="tokenizer.ggml.model='bert', which is WordPiece"),
    "tokenizer.ggml.model: llama, gemma4": Case(
        key="tokenizer.ggml.model", value="gemma4", reads=lambda codec: codec.decode([31]) == "\u0120"
    ),
    "tokenizer.ggml.pre": Case(value="chameleon", says="tokenizer.ggml.pre='chameleon'"),
    "tokenizer.ggml.tokens": Case(value=[*NAMES[:63], "th"], says="tokenizer.ggml.tokens has 'th' twice"),
    "tokenizer.ggml.merges": Case(),
    "tokenizer.ggml.scores": Case(beside=SPM),
    "tokenizer.ggml.add_space_prefix": Case(
        value=False, beside=SPM, reads=lambda codec: codec.encode("a", add_special=False) == [5]
    ),
    "tokenizer.ggml.token_type": Case(
        value=TYPES, reads=lambda codec: {0, 1} <= codec.special_ids and codec.decode([0, 1, 3]) == "<u>"
    ),
    "tokenizer.ggml.token_type, too short": Case(
        key="tokenizer.ggml.token_type", value=TYPES[:9], says="tokenizer.ggml.token_type has 9 entries"
    ),
    "tokenizer.ggml.tokens, known end tokens": Case(
        key="tokenizer.ggml.tokens", value=[*NAMES[:4], "<|eot_id|>", *NAMES[5:]], reads=ends(2, 4)
    ),
    "tokenizer.ggml.eos_token_id": Case(value=4, reads=ends(4)),
    "tokenizer.ggml.eot_token_id": Case(value=4, reads=ends(4)),
    "tokenizer.ggml.eom_token_id": Case(value=4, reads=ends(4)),
    "tokenizer.ggml.eos_token_ids": Case(value=[3, 4], reads=ends(3, 4)),
    "tokenizer.ggml.fim_pad_token_id": Case(value=4, reads=ends(4)),
    "tokenizer.ggml.fim_rep_token_id": Case(value=4, reads=ends(4)),
    "tokenizer.ggml.fim_sep_token_id": Case(value=4, reads=ends(4)),
    "tokenizer.ggml.eos_token_id, beyond the tokens": Case(
        key="tokenizer.ggml.eos_token_id", value=99, says="tokenizer.ggml.eos_token_id=99"
    ),
    "tokenizer.ggml.bos_token_id": Case(
        value=4, beside={"tokenizer.ggml.add_bos_token": True}, reads=lambda codec: codec.encode("")[:1] == [4]
    ),
    "tokenizer.ggml.add_bos_token": Case(
        value=True, beside={"tokenizer.ggml.bos_token_id": 4}, reads=lambda codec: codec.encode("") == [4]
    ),
    "tokenizer.ggml.unknown_token_id": role("unk"),
    "tokenizer.ggml.seperator_token_id": role("sep"),
    "tokenizer.ggml.padding_token_id": role("pad"),
    "tokenizer.ggml.cls_token_id": role("cls"),
    "tokenizer.ggml.mask_token_id": role("mask"),
    "tokenizer.ggml.add_eos_token": Case(value=True),
    "tokenizer.ggml.add_sep_token": Case(value=True),
    "tokenizer.ggml.suppress_tokens": Case(value=[3]),
    "tokenizer.chat_template": Case(value="T", reads=lambda codec: template(codec) == ["T", "T"]),
    "tokenizer.chat_template.tool_use": Case(
        value="U",
        beside={"tokenizer.chat_template": "T", "tokenizer.chat_templates": ["tool_use"]},
        reads=lambda codec: template(codec) == ["T", "U"],
    ),
    "tokenizer.chat_template.NAME": Case(
        key="tokenizer.chat_template.rag",
        value="R",
        says="rag='R'",
        beside={"tokenizer.chat_template": "T", "tokenizer.chat_templates": ["rag"]},
    ),
    "any other key": Case(key="tokenizer.huggingface.json", value="{}", says="tokenizer.huggingface.json="),
}


def written(path: Path, case: Case, changes: dict[str, Any]) -> Path:
    """The converted file with these keys; a rounded matrix for a version of rounding to be about."""
    reader = gguf.GGUFReader(FILES / f"{case.file}.gguf")
    arch = changes.pop("general.architecture", str(reader.get_field("general.architecture").contents()))
    writer = gguf.GGUFWriter(path, arch)
    kept = {
        one.name: one.contents() for one in reader.fields.values() if not one.name.startswith(("GGUF.", "general."))
    }
    for name, value in (kept | VOCABULARY | changes).items():
        if value is not None:
            kind = gguf.GGUFValueType.get_type(value)
            writer.add_key_value(
                name, value, kind, gguf.GGUFValueType.get_type(value[0]) if isinstance(value, list) else None
            )
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    if "general.quantization_version" in changes:
        rounded = gguf.quants.quantize(np.ones((32, 32), np.float32), gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor("rounded", rounded, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def outcome(path: Path) -> tuple[dict[str, object], list[Any], TextCodec]:
    """The settings; what becomes of a text; the codec."""
    config, codec = GgufModel(path).read_config(), load_codec(path)
    assert codec is not None
    ids = codec.encode(TEXT)
    made = [ids, codec.decode(ids), codec.eos_token_ids, codec.special_tokens, codec.special_ids]
    return config, [*made, None if codec.chat_template is None else template(codec)], codec


def test_every_case_has_a_row():
    assert sorted(key for _, key, *_ in ROWS) == sorted(CASES)


@pytest.mark.parametrize(("key", "done"), [row[1:3] for row in ROWS], ids=lambda cell: cell.replace(" ", "-"))
def test_a_row_is_true(key: str, done: str, tmp_path: Path, caplog):
    case = CASES[key]
    name = case.key or key.replace("ARCH", "llama")
    with_key = written(tmp_path / "m.gguf", case, case.beside | {name: case.value})
    (tmp_path / "without").mkdir()
    without = written(tmp_path / "without/m.gguf", case, {} if case.alone else dict(case.beside))
    caplog.set_level(logging.INFO, "outdraft.notes")
    if done == "refused":
        with pytest.raises(ModelLoadError) as caught:
            outcome(with_key)
        told = [str(caught.value)]
    else:
        config, made, codec = outcome(with_key)
        told = [record.getMessage() for record in caplog.records]
        bare, before, _ = outcome(without)
    if done == "read":
        if isinstance(case.reads, tuple):
            setting, value = case.reads
            assert config[setting] == value != bare.get(setting)
        else:
            assert case.reads(codec if name.startswith("tokenizer.") else config)
        assert (config, made) != (bare, before) and not told
        return
    if done == "noted":
        assert made == before and {**config, "eos_token_id": None} == {**bare, "eos_token_id": None}
    (line,) = told
    assert "\n" not in line and "m.gguf" in line and (case.says or name) in line, line
