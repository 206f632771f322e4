"""The text codec against the `tokenizers` library itself: GPT-2, NeoX, and Llama style with byte fallback."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from outdraft.codecs.spelling import byte_of_character, read_spelling
from outdraft.codecs.stream import TextStream
from outdraft.codecs.text import TextCodec
from outdraft.options.errors import ModelLoadError
from tests.helpers.byte_codec import ByteCodec

ANY_FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def test_byte_table_is_a_bijection():
    assert sorted(byte_of_character().values()) == list(range(256))


@given(text=WORDS)
def test_byte_codec_round_trip(text: str):
    codec = ByteCodec()
    assert codec.decode(codec.encode(text)) == text


@ANY_FIXTURE
@given(text=WORDS)
def test_round_trip(codec: TextCodec, real_directory: Path, text: str):
    ids = codec.encode(text)
    if real_directory.name == "tokenizer-neox20b":  # it normalises text to NFC, and so does its own round trip
        text = unicodedata.normalize("NFC", text)
    if not codec.special_ids.intersection(ids[1:]):  # the text spells a special token, or has a character unknown
        assert codec.decode(ids) == text


@ANY_FIXTURE
@given(data=st.data())
def test_decode_equals_the_library_on_any_ids(codec: TextCodec, data: st.DataObject):
    ids = data.draw(st.lists(st.integers(0, codec.vocab_size - 1), max_size=12))
    ids = [i for i in ids if i not in codec.special_ids]
    assert codec.decode(ids) == codec._tokenizer.decode(ids)


def test_added_tokens_in_any_order_keep_their_ids(tmp_path: Path):
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    tokenizer.decoder = decoders.ByteLevel()
    described = json.loads(tokenizer.to_str())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    listed = [{"id": i, "content": f"<{i}>", "special": True, **flags} for i in (3, 2)]
    (tmp_path / "tokenizer.json").write_text(json.dumps({**described, "added_tokens": listed}))
    assert TextCodec.load(tmp_path).encode("<2>a<3>") == [2, 0, 3]


def test_start_token_and_continuation(codec: TextCodec, real_directory: Path):
    ids = codec.encode("Once upon a time")
    if real_directory.name == "tinystories-656k":
        assert ids[0] == codec.bos_token_id == 1
        assert codec.eos_token_ids == {2}
        assert codec.encode("Once", add_special=False)[0] != 1
    assert codec.decode(ids) == "Once upon a time"
    for cut in range(2, len(ids)):
        assert codec.decode(ids[:cut]) + codec.decode(ids[cut:], continues=True) == "Once upon a time"


@pytest.fixture(scope="session")
def llama_style() -> TextCodec:
    """Byte fallback as Llama 2 has it, over a toy vocabulary."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a"]
    model = models.BPE(
        vocab={name: i for i, name in enumerate(names)}, merges=[("▁", "a")], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in names[:3]])
    return TextCodec(tokenizer, config={"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True})


@given(text=st.text(st.sampled_from("ab €漢🙂\n"), max_size=12))
def test_byte_fallback_round_trip(llama_style: TextCodec, text: str):
    ids = llama_style.encode(text)
    assert ids[0] == llama_style.bos_token_id
    assert llama_style.decode(ids) == text == llama_style._tokenizer.decode(ids)


def test_a_text_that_goes_on_keeps_its_space(llama_style: TextCodec):
    ids = llama_style.encode("a b", add_special=False)
    assert llama_style.decode(ids) == "a b" and llama_style.decode(ids, continues=True) == " a b"


@pytest.mark.parametrize(
    "text, begins",
    [("a b", [0, 0, 1, 2]), ("<s>a b", [0, 3, 4, 5]), ("a</s>b €a", [0, 0, 1, 5, 5, 6, 7, 7, 7, 8]), ("", [0])],
)
def test_a_token_begins_where_the_one_before_it_ends(llama_style: TextCodec, text: str, begins: list[int]):
    """A start token that was added has no room, and one that the text names has."""
    assert llama_style.begins(text, llama_style.encode(text)) == begins


def test_a_token_begins_with_its_space():
    """Where the tokenizer says that it begins behind it."""
    alphabet = {one: i for i, one in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE({**alphabet, "Ġb": 256}, [("Ġ", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", rstrip=True, normalized=False)])
    codec, text = TextCodec(tokenizer), "a b<end>\na bé b"
    ids = codec.encode(text)
    assert [codec.token_text(one) for one in ids][:4] == ["a", " b", "<end>", "a"]
    assert codec.begins(text, ids) == [0, 1, 3, 8, 10, 12, 12, 13]


def test_a_token_that_was_added_behind_the_text_begins_at_its_end():
    names = ["<s>", "</s>", "<sep>", "hi", "there"]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="there"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.ByteLevel()
    tokenizer.add_special_tokens(names[:3])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A <sep>", special_tokens=[("<s>", 0), ("<sep>", 2)]
    )
    codec = TextCodec(tokenizer, config={"bos_token": "<s>", "eos_token": "</s>"})
    assert codec.encode("hi there") == [0, 3, 4, 2]
    assert codec.begins("hi there", [0, 3, 4, 2]) == [0, 0, 2, 8] and codec.begins("", [0, 2]) == [0, 0]


@pytest.mark.parametrize("start", [0, 1])
def test_a_decoder_strips_what_it_says(start: int):
    mark = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    steps = [mark, {"type": "Strip", "content": " ", "start": start, "stop": 0}]
    assert read_spelling({"type": "Sequence", "decoders": steps}).strips_space == (start == 1)


@given(ids=st.lists(st.sampled_from([3 + 0xE2, 3 + 0x82, 3 + 0xAC, 3 + 0x41, 259, 260, 262]), max_size=12))
def test_malformed_runs_keep_their_good_characters(llama_style: TextCodec, ids: list[int]):
    theirs, ours = llama_style._tokenizer.decode(ids), llama_style.decode(ids)
    stream = TextStream(llama_style, continues=False)
    assert "".join([*map(stream.push, ids), stream.finish()]) == ours
    if "\ufffd" not in theirs:
        assert ours == theirs  # where the library gives up a whole run of raw bytes, ours loses only the bad ones


def test_ids_beyond_the_vocabulary_are_empty(codec: TextCodec, real_directory: Path):
    assert codec.token_bytes(codec.vocab_size + 7) == b""
    assert codec.token_bytes(-1) == b""


def small(tmp_path: Path, **config: object) -> Path:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "<s>": 1, "</s>": 2}, unk_token="a"))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_config_decides_start_and_end(tmp_path: Path):
    codec = TextCodec.load(small(tmp_path, bos_token={"content": "<s>"}, eos_token="</s>", add_bos_token=True))
    assert codec.encode("a") == [1, 0]
    assert codec.eos_token_ids == {2}
    assert codec.token_text(1) == "<s>" and codec.decode([1, 0, 2]) == "a"
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [0, 2]}')
    assert TextCodec.load(tmp_path).eos_token_ids == {0, 2}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 0}')  # the tokenizer's own end is one beside it
    assert TextCodec.load(tmp_path).eos_token_ids == {0, 2}


@pytest.mark.parametrize("said", ["{}", '{"eos_token_id": null}'])
def test_ends_that_are_known_from_elsewhere_stay_where_none_is_named(tmp_path: Path, said: str):
    small(tmp_path, eos_token="</s>")
    (tmp_path / "generation_config.json").write_text(said)
    assert TextCodec.load(tmp_path, eos_token_ids=[0]).eos_token_ids == {0, 2}


def test_errors_name_the_file(tmp_path: Path):
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.json"):
        TextCodec.load(tmp_path)
    small(tmp_path, add_bos_token=True)
    with pytest.raises(ModelLoadError, match="bos_token names no known token"):
        TextCodec.load(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelLoadError, match=r"tokenizer_config\.json is not readable JSON"):
        TextCodec.load(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    whole = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is not readable JSON"):
        TextCodec.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text(whole.replace('"ByteLevel"', '"CTC"'))
    with pytest.raises(ModelLoadError, match=r"not a tokenizer|'CTC' is not supported"):
        TextCodec.load(tmp_path)


def test_half_a_character_names_no_token():
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    with pytest.raises(ModelLoadError, match="half a character"):
        TextCodec(tokenizer, config={"eos_token": "\ud800"})
