"""vocab.json and merges.txt read as the class that is named splits text; everything else is refused with the cure."""

import json
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from outdraft.codecs.text import TextCodec
from outdraft.models.files.load_codec import load_codec
from outdraft.options.errors import ModelLoadError

MARK, SILENT = "<|im_start|>", "<tool>"
TEXTS = (
    "It's 1234 o'clock,\n\n  and I'LL   wait...\r\n\tTo-day  ",
    "e\u0301 and \u00e9 are one letter",
    f"{MARK}user\nhi{SILENT}there<|endoftext|>",
)


@pytest.fixture
def files() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A vocabulary of all bytes, digits that merge, and a few words."""
    names = {name: i for i, name in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [
        ("1", "2"),
        ("3", "4"),
        ("12", "34"),
        ("h", "i"),
        ("\u0120", "a"),
        ("\u0120a", "n"),
        ("\u010a", "\u010a"),
        ("'", "s"),
    ]
    for left, right in merges:
        names[left + right] = len(names)
    names["<|endoftext|>"] = len(names)
    return names, merges


def write(directory: Path, files: tuple[dict[str, int], list[tuple[str, str]]], **config: object) -> Path:
    names, merges = files
    (directory / "vocab.json").write_text(json.dumps(names))
    (directory / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges) + "\n")
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def added(first: int) -> dict[str, dict[str, object]]:
    return {str(first): {"content": MARK, "special": True}, str(first + 1): {"content": SILENT, "special": False}}


@pytest.mark.parametrize("kind", ["Qwen2Tokenizer", "GPT2Tokenizer", "GPT2TokenizerFast"])
def test_as_transformers_splits(tmp_path: Path, files, kind: str):
    transformers = pytest.importorskip("transformers")
    directory = write(tmp_path, files, tokenizer_class=kind, added_tokens_decoder=added(len(files[0])))
    ours = TextCodec.load(directory)
    theirs = getattr(transformers, kind.removesuffix("Fast"))(vocab=files[0], merges=files[1])
    theirs.add_tokens([MARK], special_tokens=True)
    theirs.add_tokens([SILENT])
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
    assert MARK not in ours.decode(ours.encode(TEXTS[2])) and SILENT in ours.decode(ours.encode(TEXTS[2]))


def test_the_two_split_differently(tmp_path: Path, files):
    """Else the test above could not tell them apart."""
    ids = []
    for kind in ("Qwen2Tokenizer", "GPT2Tokenizer"):
        (tmp_path / kind).mkdir()
        ids.append(TextCodec.load(write(tmp_path / kind, files, tokenizer_class=kind)).encode(TEXTS[0]))
    assert ids[0] != ids[1]


def test_added_tokens_of_older_directories(tmp_path: Path, files):
    """As in transformers, such a token is special where it has a role or special_tokens_map.json lists it."""
    first = len(files[0])
    (write(tmp_path, files) / "added_tokens.json").write_text(json.dumps({SILENT: first, MARK: first + 1}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": [MARK]}))
    codec = TextCodec.load(tmp_path)
    assert codec.encode(SILENT + MARK) == [first, first + 1]
    assert first not in codec.special_ids and first + 1 in codec.special_ids


def test_an_id_that_follows_nothing(tmp_path: Path, files):
    write(tmp_path, files, added_tokens_decoder=added(len(files[0]) + 5))
    with pytest.raises(ModelLoadError, match=r"im_start.*has the id 27\d.*save_pretrained"):
        TextCodec.load(tmp_path)


def test_a_class_that_splits_otherwise(tmp_path: Path, files):
    write(tmp_path, files, tokenizer_class="RobertaTokenizer")
    with pytest.raises(ModelLoadError, match=r"tokenizer_class='RobertaTokenizer'.*save_pretrained"):
        TextCodec.load(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.model", "tekken.json", "vocab.json"])
def test_a_form_that_is_not_read_is_said_with_the_cure(tmp_path: Path, name: str):
    (tmp_path / name).write_text("{}")
    with pytest.raises(ModelLoadError, match=rf"has {name} and no tokenizer.json.*AutoTokenizer.*save_pretrained"):
        load_codec(tmp_path)


def test_no_tokenizer_at_all_is_for_ids(tmp_path: Path):
    assert load_codec(tmp_path) is None
