"""Vocabularies of GGUF files from their metadata alone."""

import random
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from outdraft.codecs.gguf import codec_from_gguf
from outdraft.codecs.gguf_cuts import CUTS, pre_of, pre_tokenizer_of
from outdraft.codecs.spelling import byte_of_character
from outdraft.options.errors import ModelLoadError

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BLANK = "\u2581"


def codec_of(names, kinds=None, **keys):
    known = {f"tokenizer.ggml.{name}": value for name, value in keys.items() if name not in ("general", "template")}
    known |= {"tokenizer.ggml.tokens": list(names), "tokenizer.ggml.token_type": kinds}
    known |= {"tokenizer.chat_template": keys.get("template"), "general.architecture": keys.get("general")}
    return codec_from_gguf(known.get)


def spm(pieces, extra=(), **keys):
    """Pieces by their scores; `extra`: further tokens with their kinds."""
    names = ["<unk>", "<s>", "</s>", *BYTES, *pieces, *dict(extra)]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces), *dict(extra).values()]
    scores = [0.0] * 259 + [*pieces.values()] + [0.0] * len(dict(extra))
    return codec_of(names, kinds, model="llama", scores=scores, **keys)


def byte_level(merges=(), extra=(), pre="gpt-2", **keys):
    names = [*byte_of_character(), *dict.fromkeys("".join(pair) for pair in merges), *dict(extra)]
    kinds = [NORMAL] * (len(names) - len(dict(extra))) + [*dict(extra).values()]
    return codec_of(names, kinds, model="gpt2", pre=pre, merges=[" ".join(pair) for pair in merges], **keys)


def shown(codec, text, **how):
    return [codec.token_text(one) for one in codec.encode(text, **how)]


def joined(codec, ids):
    stream = codec.stream(continues=False)
    return "".join(map(stream.push, ids)) + stream.finish()


# -- SentencePiece ----------------------------------------------------------------------------------------------------


def by_scores(text, scores):
    """As SentencePiece has it: join the two neighbours that make the token of the best score, the leftmost first."""
    parts = list(text)
    while True:
        pairs = [(scores[a + b], -i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in scores]
        if not pairs:
            return parts
        at = -max(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def test_neighbours_are_joined_by_the_scores():
    dice = random.Random(3)
    for _ in range(20):
        made = {"".join(dice.choices("abc" + BLANK, k=dice.randint(2, 5))) for _ in range(60)}
        scores = dict(zip("abc" + BLANK, [-99.0] * 4, strict=True))
        scores |= {piece: -float(rank) for rank, piece in enumerate(dice.sample(sorted(made), len(made)))}
        codec = spm(scores)
        for _ in range(30):
            text = "".join(dice.choices("abc ", k=dice.randint(1, 14)))
            ids = codec.encode(text, add_special=False)
            assert [codec._tokenizer.id_to_token(one) for one in ids] == by_scores(
                (" " + text).replace(" ", BLANK), scores
            )
            assert joined(codec, ids) == codec.decode(ids) == text


ABC = {BLANK: -9.0, "a": -8.0, "b": -7.0, BLANK + "a": -1.0, "ab": -2.0}


def test_a_text_starts_with_the_start_token_and_a_blank():
    codec = spm(ABC)
    assert shown(codec, "ab") == ["<s>", " a", "b"] and codec.encode("") == [1]
    assert codec.decode(codec.encode("ab")) == "ab" and codec.eos_token_ids == {2}
    assert shown(spm(ABC, add_bos_token=False), "ab") == [" a", "b"]
    bare = spm(ABC, add_space_prefix=False)
    assert shown(bare, "ab") == ["<s>", "ab"] and bare.decode(bare.encode(" ab")) == " ab"


def test_what_no_token_spells_is_bytes():
    codec = spm(ABC)
    ids = codec.encode("a\n€", add_special=False)
    assert [codec._tokenizer.id_to_token(one) for one in ids[1:]] == ["<0x0A>", "<0xE2>", "<0x82>", "<0xAC>"]
    assert codec.decode(ids) == joined(codec, ids) == "a\n€" and codec.spells_all
    named = spm(ABC | dict.fromkeys(("<", "0", "x", "A", ">", "<0", "<0x", "0A", "0A>"), -3.0))
    assert named.decode(named.encode("<0x0A>")) == "<0x0A>"  # the name of a byte, which is no byte in a text


def test_names_of_control_tokens_are_not_joined_from_letters():
    codec = spm(ABC | {"<": -5.0, ">": -5.0, "<a": -3.0, "<ab": -3.0}, {"<ab>": CONTROL, "ab>": USER})
    assert shown(codec, "a<ab>b") == ["<s>", " a", "<ab>", " ", "b"]
    assert codec.decode(codec.encode("a<ab>ab>")) == "aab>"
    inside = codec.apply_chat_template([{"role": "user", "content": "<ab>"}])
    assert codec.encode("<ab>", add_special=False)[0] not in inside


def test_added_blanks_are_taken_whole():
    codec = spm(ABC, {"  ": USER, "   ": USER}, add_space_prefix=False)
    assert shown(codec, "a     b") == ["<s>", "a", "   ", "  ", "b"]
    assert codec.decode(codec.encode("a     b")) == "a     b"


@pytest.mark.parametrize("general", ["phi3", "llama"])
def test_blanks_behind_control_tokens_of_phi_3_are_theirs(general):
    codec = spm(ABC, {"<|user|>": CONTROL, "<|endoftext|>": CONTROL}, general=general)
    after = ["a"] if general == "phi3" else ["\n", "a"]
    assert shown(codec, "<|user|>\na")[1:] == ["<|user|>", *([" a"] if general == "phi3" else [" ", *after])]
    assert shown(codec, "<|endoftext|>\na")[1:] == ["<|endoftext|>", " ", "\n", "a"]


def test_blanks_behind_control_tokens_of_later_phis_are_text():
    codec = byte_level(extra={"<|user|>": CONTROL}, general="phi3")
    assert codec.decode(codec.encode("<|user|>\na")) == "\na"


def test_gemma_4_has_merges_of_marked_text():
    names = ["<pad>", "<eos>", "<bos>", "<unk>", *BYTES, BLANK, "a", "\n", BLANK + "a", "\n\n", "<|turn>"]
    kinds = [CONTROL] * 4 + [BYTE] * 256 + [NORMAL] * 5 + [CONTROL]
    merges = [f"{BLANK} a", "\n \n"]
    ids = dict(bos_token_id=2, eos_token_id=1, unknown_token_id=3, add_bos_token=False)
    codec = codec_of(names, kinds, model="gemma4", merges=merges, **ids)
    assert shown(codec, "a a\n\n\n<|turn>é")[:-2] == ["<bos>", "a", " a", "\n\n", "\n", "<|turn>"]
    assert codec.decode(codec.encode("a a\n\n\né")) == "a a\n\n\né"


def test_roles_that_a_sentencepiece_file_leaves_out():
    assert spm(ABC).special_tokens == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


# -- byte-level BPE ---------------------------------------------------------------------------------------------------

TEXT = "It's WE'LL 12345 résuMÉ, hi!!/\r\n  x東京カナ़ é\n"
QWEN2 = "It|'s| WE|'LL| |1|2|3|4|5| résuMÉ|,| hi|!!/\r\n| | x東京カナ|़| é|\n"
GPT2 = "It|'s| WE|'|LL| 12345| résuMÉ|,| hi|!!/|\r\n | x東京カナ|़| é|\n"
CASED = "It|'s| WE|'LL| |1|2|3|4|5| résu|MÉ|,| hi|!!/\r\n| | x東京カナ़| é|\n"
WAYS = {
    "gpt-2": GPT2,
    "smollm": GPT2.replace(" 12345", " |1|2|3|4|5"),
    "qwen2": QWEN2,
    "qwen35": QWEN2.replace("ナ|़", "ナ़"),
    "llama-bpe": QWEN2.replace("1|2|3|4|5", "123|45"),
    "seed-coder": QWEN2.replace("/\r\n", "/|\r\n"),
    "tekken": CASED,
    "gpt-4o": CASED.replace("It|'s| WE|'LL", "It's| WE'LL").replace("1|2|3|4|5", "123|45"),
    "tiny_aya": CASED.replace("It|'s| WE|'LL", "It's| WE'LL").replace("1|2|3|4|5", "12|345"),
    "deepseek-llm": "It|'|s| WE|'|LL| |12345| r|é|suM|É|,| hi|!!/|\r|\n| | x|東京カナ़| é|\n",
    "deepseek-coder": "It|'|s| WE|'|LL| |1|2|3|4|5| résuMÉ|,| hi|!!/|\r|\n| | x|東京カナ|़| é|\n",
    "deepseek-v3": "It|'s| WE|'LL| |123|45| résuMÉ|,| hi|!!/\r\n| | x|東京カナ|़| é|\n",
    "falcon": "It|'|s| WE|'|LL| |123|45| résuMÉ|,| hi|!!/|\r\n | x東京カナ|़| é|\n",
}


@pytest.mark.parametrize("pre", WAYS)
def test_a_text_is_cut_as_the_family_cuts_it(pre):
    pieces = pre_tokenizer_of(CUTS[pre]).pre_tokenize_str(TEXT)
    assert "|".join(TEXT[start:end] for _, (start, end) in pieces) == WAYS[pre]


ENDS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
PUBLISHED = {  # patterns of Qwen2.5 and Qwen3, Qwen3.5, Llama 3, and its way without whole words; and what they trim
    "qwen2": (r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"?\p{L}+|\p{N}|", False),
    "qwen35": (r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", r"?[\p{L}\p{M}]+|\p{N}|", False),
    "llama-bpe": (r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"?\p{L}+|\p{N}{1,3}|", True),
    "dbrx": (r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"?\p{L}+|\p{N}{1,3}|", False),
}


@pytest.mark.parametrize("pre", PUBLISHED)
def test_a_published_tokenizer_is_known_by_how_it_cuts(pre):
    signs, letters, trims = PUBLISHED[pre]
    pattern = rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]{letters}{signs}{ENDS}"
    tokenizer = Tokenizer(models.BPE(ignore_merges=CUTS[pre].whole))
    tokenizer.normalizer = normalizers.NFC() if CUTS[pre].nfc else None
    steps = [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trims, use_regex=False),
    ]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    assert pre_of(tokenizer) == pre
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps[:1])
    assert pre_of(tokenizer) is None


def test_deepseek_has_signs_of_other_scripts_and_letters_with_two_cases():
    text = "ж！～x。ʔжꙀ"
    pieces = pre_tokenizer_of(CUTS["deepseek-llm"]).pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in pieces] == ["ж", "！～", "x", "。", "ʔ", "жꙀ"]


def test_every_way_of_cutting_is_tested():
    assert {cut.steps for cut in CUTS.values()} == {CUTS[pre].steps for pre in WAYS}


@pytest.mark.parametrize("pre", CUTS)
def test_every_name_reads_and_writes_a_text(pre):
    codec = byte_level([("a", "b"), ("ab", "c")], {"<s>": CONTROL}, pre=pre, bos_token_id=258)
    assert codec.decode(codec.encode(TEXT)) == TEXT and codec.spells_all
    starts = pre in "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 tekken".split()
    assert codec.encode("") == [258] * starts
    composed = pre in ("qwen2", "qwen35", "mpt", "olmo", "command-r")
    assert codec.decode(codec.encode("e\u0301")) == ("é" if composed else "e\u0301")


@pytest.mark.parametrize(("pre", "ids"), [("llama-bpe", ["abc"]), ("dbrx", ["a", "bc"])])
def test_a_word_that_is_a_token_is_that_token_where_the_family_has_it_so(pre, ids):
    assert shown(byte_level([("b", "c"), ("ab", "c")], pre=pre, extra={"ab": NORMAL}), "abc") == ids


def test_the_page_has_every_name():
    page = (Path(__file__).parents[2] / "docs/models.md").read_text()
    named = re.findall("`([^`]+)`", "".join(re.findall(r"^\| `gpt2` \|(.*?)\|", page, re.MULTILINE)))
    assert sorted(named) == sorted(CUTS)


def test_added_letters_are_letters_and_no_bytes():
    plain = byte_of_character()
    names = [name for name in plain if name != "ü"] + ["ü"]
    codec = codec_of(names, [NORMAL] * 255 + [USER], model="gpt2", pre="deepseek-llm", merges=[])
    ids = codec.encode("für")
    assert ids[1] == 255 and len(ids) == 3 and codec.decode(ids) == joined(codec, ids) == "für"


def test_unnamed_tokens_get_names():
    codec = codec_of([*byte_of_character(), "", ""], model="gpt2", pre="gpt-2", merges=[])
    assert codec.num_ids == 258 and codec.token_text(257) == "[EMPTY_257]"


def test_a_list_of_the_file_is_asked_for_once():
    asked: Counter[str] = Counter()
    keys = {"model": "llama", "tokens": ["a", "b"], "scores": [0.0, 0.0]}
    known = {f"tokenizer.ggml.{name}": value for name, value in keys.items()}

    def get(key):
        asked.update([key])
        return known.get(key)

    assert codec_from_gguf(get).encode("a") and asked["tokenizer.ggml.tokens"] == 1


# -- end tokens and errors --------------------------------------------------------------------------------------------


def test_ends_by_their_text():
    extra = {"<turn|>": NORMAL, "</s>": NORMAL, "<|fim_pad|>": CONTROL, "<|file_sep|>": USER}
    assert byte_level(extra=extra).eos_token_ids == {256, 258, 259}


@pytest.mark.parametrize(
    ("model", "form"), [("bert", "WordPiece"), ("t5", "Unigram"), ("rwkv", "RWKV"), ("plamo2", "PLaMo 2")]
)
def test_other_forms_are_refused_by_name(model, form):
    with pytest.raises(ModelLoadError, match=f"model='{model}', which is {form}\\) is not read.*put the model's tok"):
        codec_of(["a"], model=model)


@pytest.mark.parametrize("pre", [None, "default", "chameleon", 5])
def test_unknown_ways_of_cutting_are_refused(pre):
    with pytest.raises(ModelLoadError, match=f"pre={pre!r}\\) is not read: .*put the model's tokenizer.json"):
        byte_level(pre=pre)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (dict(scores=[0.0]), "scores has 1 entries for 2 tokens"),
        (dict(scores=["a", "b"]), "tokenizer.ggml.scores"),
        (dict(), "has no tokenizer.ggml.scores"),
        (
            dict(scores=[0.0, 0.0], add_space_prefix="yes"),
            "^(?!.*belong together).*tokenizer.ggml.add_space_prefix='yes'",
        ),
        (dict(model="gemma4"), "has no tokenizer.ggml.merges"),
        (dict(model="gemma4", merges=["a c"]), "do not belong together"),
    ],
)
def test_damaged_vocabularies(keys, says):
    with pytest.raises(ModelLoadError, match=says):
        codec_of(["a", "b"], **{"model": "llama", **keys})
