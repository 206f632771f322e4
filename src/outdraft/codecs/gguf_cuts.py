"""Byte-level BPE of a GGUF file (`tokenizer.ggml.model` "gpt2"): how each family cuts a text before it merges bytes.

The file only names the way (`tokenizer.ggml.pre`); what a name stands for is written down here, with the normalizer
that the own tokenizers of the family have.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from outdraft.codecs.tokenizer_file import described_part, steps_of

_GPT2, _DIGITS = "GPT-2's words", "digit by digit"  # steps that the library has under a name; the others are patterns


@dataclass(frozen=True, slots=True)
class Cut:
    """The way of one family."""

    steps: tuple[str, ...]  # each cuts what the one before has left
    nfc: bool = False  # a letter and its marks are one character where Unicode has it
    whole: bool = False  # a word that is a token is that token, whatever the merges make of it
    starts: bool = False  # a text has a start token where the file does not say


def _english(digits: str = "", letters: str = r"\p{L}", ends: str = r"[\r\n]*") -> Cut:
    """English endings, words with the sign before them, digits, other signs, ends of lines, blanks. `digits`: how many
    stay together; `ends`: what stays with the signs before it."""
    letter = letters if letters == r"\p{L}" else f"[{letters}]"  # as the families' own files write it
    words = rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?{letter}+|\p{{N}}{digits}| ?[^\s{letters}\p{{N}}]+{ends}{_BLANKS}"
    return Cut((words,))


def _cased(ending: str, digits: str) -> tuple[str, ...]:
    """Words end where a small letter is followed by a capital one."""
    before = r"[^\r\n\p{L}\p{N}]?"
    words = f"{before}{_UPPER}*{_LOWER}+{ending}|{before}{_UPPER}+{_LOWER}*{ending}"
    return (rf"{words}|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_BLANKS}",)


def _by_code(ranges: str) -> str:
    """Hexadecimal numbers of characters as a pattern writes them."""
    return "".join("-".join(rf"\x{{{one}}}" for one in part.split("-")) for part in ranges.split())


_ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ASCII = r"!-/:-@\[-`{-~"
_CASES = (  # letters of alphabets with two cases, beside English
    "B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 "
    "3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F "
    "104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_QWEN2, _LLAMA3 = _english(), _english("{1,3}")
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[A-Za-z{_by_code(_CASES)}]+",
    rf"\s?[!-/:-~{_by_code('FF01-FF0F FF1A-FF5E 2018-201F 3000-3002')}]+",
    r"\s+$",
    f"[{_by_code('4E00-9FA5 800-4E00 AC00-D7FF')}]+",
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_LLM[4], _DIGITS)
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    f"[{_by_code('4E00-9FA5 3040-309F 30A0-30FF')}]+",
    rf"[{_ASCII}][A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*{_BLANKS}",
)
_FALCON = (r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")
_BY_NAME: dict[str, Cut] = {  # the first of each way is the one that is written
    "gpt-2 phi-2 exaone4 gigachat trillion granite-docling mellum a.x-4.0": Cut((_GPT2,)),
    "mpt olmo": Cut((_GPT2,), nfc=True),
    "smollm starcoder refact codeshell exaone minerva-7b mellum2": Cut((_DIGITS, _GPT2)),
    "command-r": Cut((_DIGITS, _GPT2), nfc=True),
    "qwen2": replace(_QWEN2, nfc=True),
    "qwen35": replace(_english(letters=r"\p{L}\p{M}"), nfc=True),
    "deepseek-r1-qwen megrez stablelm2 hunyuan kormo f2llmv2 solar-open grok-2": _QWEN2,
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": replace(_LLAMA3, whole=True, starts=True),
    "dbrx smaug-bpe chatglm-bpe": _LLAMA3,
    "glm4 glm5": replace(_LLAMA3, whole=True),
    "seed-coder": _english(ends=""),
    "tekken": Cut(_cased("", ""), whole=True, starts=True),
    "gpt-4o llama4 kanana2": Cut(_cased(f"{_ENDING}?", "{1,3}")),
    "tiny_aya cohere2moe": Cut((r"\d{1,3}(?=(?:\d{3})*\b)", *_cased(f"{_ENDING}?", "{1,3}"))),
    "deepseek-llm": Cut(_DEEPSEEK_LLM),
    "deepseek-coder": Cut(_DEEPSEEK_CODER),
    "deepseek-v3 hunyuan-dense joyai-llm": Cut(_DEEPSEEK_V3),
    "falcon": Cut(_FALCON),
}
CUTS = {name: cut for names, cut in _BY_NAME.items() for name in names.split()}


def byte_level(vocab: Mapping[str, int], merges: Seq[tuple[str, str]], cut: Cut) -> Tokenizer:
    """Without its added tokens. Raises what the library does for tokens and merges that do not belong together."""
    tokenizer = Tokenizer(models.BPE(vocab=dict(vocab), merges=list(merges), ignore_merges=cut.whole))
    if cut.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer_of(cut)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def pre_of(tokenizer: Tokenizer) -> str | None:
    """The value of tokenizer.ggml.pre by which the same vocabulary cuts texts alike; None: there is none here."""
    whole = bool(getattr(tokenizer.model, "ignore_merges", False))
    own = _cutting(tokenizer.pre_tokenizer), described_part(tokenizer.normalizer), whole
    for pre, cut in CUTS.items():
        if own == (_cutting(pre_tokenizer_of(cut)), {"type": "NFC"} if cut.nfc else None, cut.whole):
            return pre
    return None


def _cutting(part: pre_tokenizers.PreTokenizer | None) -> list[dict[str, Any]]:
    """What its steps say of ids: `trim_offsets` is of places in the text alone, and families say it either way."""
    steps = steps_of(described_part(part), "pretokenizers")
    return [{key: value for key, value in step.items() if key != "trim_offsets"} for step in steps]


def pre_tokenizer_of(cut: Cut) -> pre_tokenizers.PreTokenizer:
    """As the family's tokenizer.json has it."""
    steps = [_STEPS[one]() if one in _STEPS else pre_tokenizers.Split(Regex(one), "isolated") for one in cut.steps]
    if _GPT2 not in cut.steps:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]


_STEPS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    _GPT2: lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    _DIGITS: lambda: pre_tokenizers.Digits(individual_digits=True),
}
