"""Text beside a part keeps the names of tokens that the template wrote, and no others."""

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from outdraft.codecs.chat import ChatPrompt
from outdraft.codecs.parts import PartRows, PromptParts
from outdraft.codecs.text import TextCodec

TURN = "<|turn|>"


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([TURN])
    return TextCodec(tokenizer)


def test_names_of_tokens_behind_a_part(codec):
    parts = PromptParts()
    parts.register("codes", lambda part: PartRows(ids=(1, 2)))
    taken = parts.take([{"role": "user", "content": [{"type": "codes"}]}])
    (mark,) = taken.marks
    text = f"{TURN}{TURN}a{mark}{TURN}b{TURN}"  # the template wrote the first, and the last but one
    own = tuple((at, at + len(TURN)) for at in (0, text.index(mark) + len(mark)))
    turn, spelled = codec.added[TURN], codec.encode_chat(ChatPrompt(text=TURN, add_special=False, own=()))
    a, b = codec.encode("a"), codec.encode("b")
    assert turn not in spelled and len(spelled) == len(TURN)
    ids = taken.encode(codec, ChatPrompt(text=text, add_special=False, own=own))["prompt_token_ids"]
    assert ids == [turn, *spelled, *a, 1, 2, turn, *b, *spelled]
