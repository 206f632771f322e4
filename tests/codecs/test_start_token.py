"""A start token stands once before a text, written by the tokenizer, the chat template, or both.

Chat prompts are compared with `apply_chat_template` of transformers, which adds no special tokens to what a template
wrote. A rendered prompt that is given as a text again is where a second start token comes from.
"""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from outdraft.codecs.text import TextCodec

TALK = [{"role": "user", "content": "hi there"}, {"role": "assistant", "content": "there"}]
BODY = "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' ' }}{% endfor %}"
TEMPLATES = {"writes it": "{{ bos_token }}" + BODY, "leaves it out": BODY}
SAYS = {"post-processor": None, "add_bos_token": True, "forbidden": False, "nothing said": None}  # add_bos_token
WORDS = ["<s>", "</s>", "user", "assistant", "hi", "there"]
LEFT_OUT = ("forbidden", "nothing said")


@pytest.fixture(params=SAYS)
def adds(request):
    return request.param


@pytest.fixture(params=TEMPLATES)
def directory(request, adds, tmp_path):
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="there"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if adds == "post-processor":
        start = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
        tokenizer.post_processor = start
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    config["chat_template"] = TEMPLATES[request.param]
    if SAYS[adds] is not None:
        config["add_bos_token"] = SAYS[adds]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def test_a_conversation_has_the_ids_of_transformers(directory):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    ours = TextCodec.load(directory)
    expected = theirs.apply_chat_template(TALK, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert ours.apply_chat_template(TALK) == expected
    assert expected.count(0) == ("bos_token" in ours.chat_template.source)


def test_a_rendered_conversation_that_is_given_as_text_has_one_start_token_at_most(directory, adds):
    codec = TextCodec.load(directory)
    text = codec.apply_chat_template(TALK, tokenize=False)
    bare = codec.encode(text, add_special=False)
    wrote = bare[0] == 0
    assert codec.encode(text) == (bare if wrote or adds in LEFT_OUT else [0, *bare])


@pytest.mark.parametrize(
    ("written", "start", "expected"),
    [
        ("<s> $A </s>", "<s>", [[0, 4, 5], [0], [0, 4, 1], [0, 4]]),
        ("$A </s>", "<s>", [[4, 5], [], [4, 1], [0, 4]]),
        ("</s> $A", "</s>", [[1, 4, 5], [1], [1, 4, 1], [1, 0, 4]]),
        ("<s> <s> $A", "<s>", [[0, 0, 4, 5], [0, 0], [0, 0, 4, 1], [0, 0, 4]]),
        ("</s> $A </s>", "</s>", [[1, 4, 5], [1], [1, 4, 1], [1, 0, 4]]),
    ],
)
def test_an_end_token_is_not_put_behind_a_text(written, start, expected):
    """One that the caller wrote stays."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="there"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single=written, special_tokens=[("<s>", 0), ("</s>", 1)])
    codec = TextCodec(tokenizer, config={"bos_token": start, "eos_token": "</s>"})
    assert [codec.encode(text) for text in ("hi there", "", "hi </s>", "<s> hi")] == expected


def test_what_a_caller_wrote_twice_stays_twice(directory, adds):
    codec = TextCodec.load(directory)
    twice = codec.encode("<s> <s> hi")
    assert twice == [0, 0, 4] == codec.encode("<s> <s> hi", add_special=False)
    assert codec.encode("hi") == ([4] if adds in LEFT_OUT else [0, 4])
    assert codec.encode("") == ([] if adds in LEFT_OUT else [0])
