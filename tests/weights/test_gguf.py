"""GGUF files: every block type against a plain reading of the format, and whole models against the original."""

import sys
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from weights.gguf_files import add_tokenizer, as_tensor, finish, write_gguf, write_tensor

from outdraft import LLM, SamplingParams
from outdraft.cli.main import main
from outdraft.codecs.gguf import codec_from_gguf
from outdraft.models.files.load import load_model, save_model
from outdraft.models.files.load_codec import load_codec
from outdraft.nn.context import CausalContext
from outdraft.nn.rope import RopeConfig, frequencies
from outdraft.options.errors import ModelLoadError, RequestError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.weights.gguf import GgufFile

KINDS = gguf.GGMLQuantizationType
RNG = np.random.default_rng(0)


def config_of(architecture, **changes):
    return replace(tiny_config(architecture, tie=changes.pop("tie", False)), windows=(), **changes)


def model_of(architecture="llama", **changes):
    return random_decoder(config_of(architecture, **changes), dtype=torch.float32, exact=False)


@torch.no_grad()
def logits_of(model):
    ids = torch.randint(61, (30,), generator=torch.Generator().manual_seed(0))
    return model(ids, torch.arange(30), CausalContext(1, 30)).float()


# -- block types ------------------------------------------------------------------------------------------------------


def half(block, at):
    return float(np.frombuffer(block[at : at + 2].tobytes(), np.float16)[0])


def read_q8_0(block):
    return [half(block, 0) * int(q) for q in block[2:].view(np.int8)]


def read_q4_0(block):
    scale, halves = half(block, 0), block[2:]
    return [scale * (int(q & 15) - 8) for q in halves] + [scale * (int(q >> 4) - 8) for q in halves]


def read_q4_k(block):
    scale, least, s, q = half(block, 0), half(block, 2), block[4:16].astype(int), block[16:].astype(int)
    values = []
    for j in range(8):
        if j < 4:
            six, low = s[j] & 63, s[j + 4] & 63
        else:
            six, low = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4
        part = q[32 * (j // 2) : 32 * (j // 2) + 32]
        values += [scale * six * (x >> 4 if j % 2 else x & 15) - least * low for x in part]
    return values


def read_q6_k(block):
    low, high = block[:128].astype(int), block[128:192].astype(int)
    scales, scale = block[192:208].view(np.int8).astype(int), half(block, 208)
    values = []
    for place in range(256):
        half_block, quarter, lane = place // 128, place % 128 // 32, place % 32
        byte = low[64 * half_block + 32 * (quarter % 2) + lane]
        bits = (byte >> 4 if quarter > 1 else byte & 15) | (high[32 * half_block + lane] >> 2 * quarter & 3) << 4
        values.append(scale * scales[place // 16] * (bits - 32))
    return values


BLOCKS = {
    "Q8_0": (read_q8_0, 34, (0,)),
    "Q4_0": (read_q4_0, 18, (0,)),
    "Q4_K": (read_q4_k, 144, (0, 2)),
    "Q6_K": (read_q6_k, 210, (208,)),
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_mean_what_the_format_says(kind, tmp_path):
    read, size, halves = BLOCKS[kind]
    blocks = RNG.integers(0, 256, (3, 2, size), dtype=np.uint8)  # 3 rows of 2 blocks
    for at in halves:
        blocks[:, :, at : at + 2] = RNG.random((3, 2, 1), dtype=np.float32).astype(np.float16).view(np.uint8)
    file = GgufFile(write_tensor(tmp_path / "m.gguf", "t", blocks.reshape(3, -1), KINDS[kind]))
    expected = np.array([[value for block in row for value in read(block)] for row in blocks])
    assert file.kind("t") == kind and file.shape("t") == expected.shape
    torch.testing.assert_close(file.tensor("t").double(), as_tensor(expected), rtol=1e-5, atol=1e-5)
    assert file.rounding() == kind.lower()
    assert torch.equal(file.blocks("t"), as_tensor(blocks.reshape(3, -1)))


@pytest.mark.parametrize(("kind", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16), ("F32", torch.float32)])
def test_floats_are_kept_as_they_are(kind, dtype, tmp_path):
    values = RNG.standard_normal((4, 64)).astype(np.float32)
    path = write_tensor(tmp_path / "m.gguf", "t", gguf.quants.quantize(values, KINDS[kind]), KINDS[kind])
    tensor = GgufFile(path).tensor("t")
    assert tensor.dtype == dtype and torch.equal(tensor, as_tensor(values).to(dtype))


# -- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        config_of("llama"),
        config_of("llama", tie=True),
        config_of("llama", head_dim=16, rope=RopeConfig(dim=16, theta=500.0)),
        config_of("llama", rope=RopeConfig(dim=8, kind="linear", factor=3.0, original_max_len=64)),
        config_of("llama", rope=RopeConfig(dim=8, kind="yarn", factor=4.0, original_max_len=16)),
        config_of("qwen2"),
        config_of("qwen3", tie=True),
    ],
    ids=["llama", "tied", "head-dim", "linear", "yarn", "qwen2", "qwen3"],
)
def test_the_same_logits_as_the_hugging_face_directory(config, tmp_path):
    model = random_decoder(config, dtype=torch.float32, exact=False)
    save_model(model, tmp_path / "hf")
    loaded = load_model(write_gguf(model, tmp_path / "m.gguf"))
    assert loaded.embedding.dtype == torch.float32 and loaded.config.variant == ""
    assert torch.equal(logits_of(loaded), logits_of(load_model(tmp_path / "hf")))


def test_llama_3_is_known_by_its_divisors(tmp_path):
    rope = RopeConfig(
        dim=8,
        theta=500000.0,
        kind="llama3",
        factor=8.0,
        original_max_len=8192,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    )
    model = model_of(rope=rope)
    divisors = frequencies(RopeConfig(dim=8, theta=500000.0)) / frequencies(rope)
    extra = {"rope_freqs.weight": divisors.float().numpy()}
    loaded = load_model(write_gguf(model, tmp_path / "m.gguf", **extra))
    assert loaded.config.rope.kind == "llama3" and loaded.config.rope.factor == 8.0
    torch.testing.assert_close(logits_of(loaded), logits_of(model))
    extra["rope_freqs.weight"] = extra["rope_freqs.weight"] + 0.5
    with pytest.raises(ModelLoadError, match=r"rope_freqs\.weight"):
        load_model(write_gguf(model, tmp_path / "other.gguf", **extra))


@pytest.mark.parametrize(("kind", "bound"), [("Q8_0", 0.06), ("Q4_0", 0.6), ("BF16", 0.06)])
def test_rounded_models_are_near_and_named(kind, bound, tmp_path):
    model = model_of(hidden_size=64, head_dim=16, intermediate_size=64, rope=RopeConfig(dim=16))
    loaded = load_model(write_gguf(model, tmp_path / "m.gguf", KINDS[kind]), dtype="float32")
    error = (logits_of(loaded) - logits_of(model)).std() / logits_of(model).std()
    assert 0 < float(error) < bound
    assert loaded.config.variant == ("" if kind == "BF16" else f"gguf-{kind.lower()}")
    assert load_model(tmp_path / "m.gguf").embedding.dtype == torch.bfloat16
    save_model(loaded, tmp_path / "directory")
    again = load_model(tmp_path / "directory", dtype="float32")
    assert again.config == loaded.config and torch.equal(logits_of(again), logits_of(loaded))


def tokenizer_of():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the quick brown fox, the lazy dog; the end of the fox 1234 it's"], trainer)
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False)])
    return tokenizer


def test_text_in_and_out_of_one_file(tmp_path):
    tokenizer = tokenizer_of()
    model = model_of(vocab_size=tokenizer.get_vocab_size())
    write_gguf(model, tmp_path / "m.gguf", tokenizer=tokenizer)
    llm = LLM(str(tmp_path / "m.gguf"))
    text = "the fox, it's 1234 dogs\n\n of the <s>end é"
    assert llm.codec.encode(text)[1:] == tokenizer.encode(text).ids and llm.codec.encode("")[0] == 0
    assert llm.codec.eos_token_ids == {0}
    made, drafted = (
        one.generate("the fox the fox", SamplingParams(max_tokens=8)) for one in (llm, llm.with_drafter("ngram"))
    )
    assert made.token_ids == drafted.token_ids
    assert llm.config["model"] == "m.gguf"


def test_a_text_ends_with_every_end_token_of_the_file(tmp_path):
    """By role, listed, and by the text of tokens."""
    tokenizer = tokenizer_of()
    first = tokenizer.get_vocab_size()
    tokenizer.add_special_tokens(["<|im_end|>", "<|x|>", "<|endoftext|>", "<|y|>", "<|z|>"])
    tokenizer.add_tokens(["<|end|>"])  # no control token, and an end all the same

    def ends(writer):
        writer.add_eot_token_id(first + 1)
        writer.add_array("tokenizer.ggml.eos_token_ids", [0, first + 3])

    model = model_of(vocab_size=tokenizer.get_vocab_size())
    path = write_gguf(model, tmp_path / "m.gguf", tokenizer=tokenizer, metadata=ends)
    wanted = {0, *range(first, first + 4), first + 5}
    assert set(load_model(path).config.eos_ids) == wanted == load_codec(path).eos_token_ids


@pytest.mark.parametrize("pre", ["qwen2", "llama-bpe", "smollm"])
def test_other_ways_to_cut_words_spell_the_same_text(pre, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    add_tokenizer(writer, tokenizer_of(), pre)
    finish(writer)
    codec = codec_from_gguf(GgufFile(tmp_path / "m.gguf").get)
    text = "The Fox's 12345 dogs,\r\n  it's... <b>!</b>\n\n end é"
    assert codec.decode(codec.encode(text)) == text
    digits = [codec.token_text(token) for token in codec.encode("12345", add_special=False)]
    assert max(map(len, digits)) <= (3 if pre == "llama-bpe" else 1)


def test_a_tokenizer_beside_the_file_is_taken(tmp_path):
    tokenizer = tokenizer_of()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    llm = LLM(str(write_gguf(model_of(vocab_size=tokenizer.get_vocab_size()), tmp_path / "m.gguf")))
    assert llm.codec.encode("the fox") == tokenizer.encode("the fox").ids


def test_what_the_directory_does_not_say_is_taken_from_the_file(tmp_path):
    tokenizer = tokenizer_of()
    tokenizer.add_special_tokens(["<|im_end|>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model, end = model_of(vocab_size=tokenizer.get_vocab_size()), tokenizer.token_to_id("<|im_end|>")
    path = write_gguf(
        model, tmp_path / "m.gguf", tokenizer=tokenizer, metadata=lambda w: w.add_chat_template("{{ bos_token }}file")
    )
    codec = load_codec(path)
    assert codec.chat_template.render([]).text == "<s>file" and codec.bos_token_id == 0
    assert codec.eos_token_ids == {0, end}
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "directory", "eos_token": "a"}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 3}')
    codec = load_codec(path)
    assert codec.chat_template.source == "directory" and codec.bos_token_id == 0
    assert codec.eos_token_ids == {3, tokenizer.token_to_id("a")}


def test_a_float_file_can_be_quantized(tmp_path, capsys):
    write_gguf(model_of(intermediate_size=64), tmp_path / "m.gguf")
    assert main(["quantize", str(tmp_path / "m.gguf"), "--out", str(tmp_path / "new")]) == 0
    assert "tokenizer.json into" in " ".join(capsys.readouterr().out.split())
    assert load_model(tmp_path / "new").config.variant == "int4-g32"
    write_gguf(model_of(intermediate_size=64), tmp_path / "q.gguf", KINDS.Q8_0)
    assert main(["quantize", str(tmp_path / "q.gguf"), "--out", str(tmp_path / "newer")]) == 2
    assert "rounded already (gguf-q8_0)" in capsys.readouterr().err


def test_without_any_tokenizer_the_error_says_what_to_do(tmp_path):
    llm = LLM(str(write_gguf(model_of(), tmp_path / "m.gguf")))
    assert len(llm.generate({"prompt_token_ids": [1, 2]}, SamplingParams(max_tokens=3)).token_ids) == 3
    with pytest.raises(RequestError, match=r"m\.gguf has no tokenizer\.json: put the model's own beside it"):
        llm.generate("text")


# -- errors -----------------------------------------------------------------------------------------------------------


def fails(path, *words):
    with pytest.raises(ModelLoadError) as caught:
        load_model(path)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9])
def test_a_cut_file(share, tmp_path):
    whole = write_gguf(model_of(), tmp_path / "m.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: int(len(whole) * share)])
    fails(tmp_path / "cut.gguf", "cut.gguf", "download it again")


def test_not_a_gguf_file(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"something else entirely, and long enough")
    fails(tmp_path / "m.gguf", "m.gguf", "no GGUF file")
    (tmp_path / "m.bin").write_bytes(b"x")
    fails(tmp_path / "m.bin", "m.bin", ".gguf")
    fails(tmp_path, "m.gguf", "no GGUF file")  # the only one there
    (tmp_path / "m.gguf").unlink()
    fails(tmp_path, "config.json")
    fails("models/absent.gguf", "absent.gguf does not exist")


def written(path, architecture, change):
    writer = gguf.GGUFWriter(path, architecture)
    change(writer)
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    finish(writer)
    return path


def test_models_that_are_not_read_from_gguf(tmp_path):
    fails(written(tmp_path / "a.gguf", "mamba", lambda writer: None), "mamba", "qwen3", "safetensors")
    fails(written(tmp_path / "b.gguf", "llama", lambda w: w.add_expert_count(8)), "llama.expert_count=8")
    fails(
        written(tmp_path / "c.gguf", "llama", lambda writer: None), "lacks the metadata", "llama.attention.head_count"
    )
    fails(written(tmp_path / "d.gguf", "llama", lambda w: w.add_uint16("split.count", 3)), "3 parts", "--merge")


def test_rotary_options_that_are_not_known(tmp_path):
    def scaled(writer):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_attn_factors(0.5)
        for name in ("head_count", "embedding_length", "context_length", "block_count", "feed_forward_length"):
            getattr(writer, f"add_{name}")(4)

    fails(written(tmp_path / "m.gguf", "llama", scaled), "llama.rope.scaling.attn_factor=0.5")


def test_a_vocabulary_alone_is_no_model(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("output_norm.weight", np.zeros(4, np.float32))
    finish(writer)
    fails(tmp_path / "m.gguf", "lacks the tensor 'token_embd.weight'")


def test_an_unexpected_tensor(tmp_path):
    extra = {"blk.0.attn_sinks.weight": np.zeros(4, np.float32)}
    fails(write_gguf(model_of(), tmp_path / "m.gguf", **extra), "blk.0.attn_sinks.weight")


def test_the_package_is_named_where_it_is_missing(tmp_path, monkeypatch):
    path = write_gguf(model_of(), tmp_path / "m.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    fails(path, "gguf package", "pip install")


# -- memory -----------------------------------------------------------------------------------------------------------


def resident(path):
    """Bytes of the mapped file that this process holds."""
    with open("/proc/self/smaps", encoding="utf-8") as file:
        lines = iter(file.read().splitlines())
    return sum(
        int(next(one for one in lines if one.startswith("Rss:")).split()[1]) << 10
        for line in lines
        if line.endswith(str(path))
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and only Linux lets go of mapped pages")
def test_what_was_read_of_a_mapped_file_is_let_go(tmp_path):
    writer = gguf.GGUFWriter(path := tmp_path / "large.gguf", "llama")
    for name in "ab":
        writer.add_tensor(name, np.zeros((64, 8 << 10), np.uint8), raw_dtype=KINDS.I8)
    finish(writer)
    file = GgufFile(path)
    assert file.blocks("a").sum() == 0 and resident(path) >= 512 << 10
    file.blocks("b")
    assert resident(path) < 256 << 10
    assert file.blocks("a").sum() == 0  # it can be read again
