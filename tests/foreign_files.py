"""Small directories for the rows of docs/files_of_others.md about tokenizers, templates and generation defaults."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from outdraft.codecs.text import TextCodec

NAMES = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the", "\u0120the", "##e", "e</w>", "t##h"]
MERGES = [("t", "h"), ("th", "e"), ("\u0120", "the")]
START, NEW = 262, 264  # ids of <s>, and of the first token that is not there
TEXT = "the  <s> the<x>y xthe<x>x </s> <z> the e\u0301 the ##"
TALK, TOOLS = [{"role": "user", "content": "hi"}], [{"type": "function", "function": {"name": "f"}}]
Files = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Files with the key set. `beside`: what stands there anyway. `expected`: where transformers is no reference.
    `says`: words of the line in the log, or of the error, where the key itself is none."""

    files: Files
    beside: Files = field(default_factory=dict)
    base: Callable[[], dict[str, Any]] = lambda: byte_level()
    expected: Callable[[TextCodec], bool] | None = None
    says: tuple[str, ...] = ()


def byte_level() -> dict[str, Any]:
    """A tokenizer.json with the special token <s> and the mark <x>."""
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(NAMES)}, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>", normalized=False)])
    tokenizer.add_tokens([AddedToken("<x>", normalized=False)])
    return json.loads(tokenizer.to_str())


def marked() -> dict[str, Any]:
    """Another, of pieces with a mark for the space."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "t", "h", "th"]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, [("t", "h")], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return json.loads(tokenizer.to_str())


def words(model: Any) -> Callable[[], dict[str, Any]]:
    """One that has whole words."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.ByteLevel()
    return lambda: json.loads(tokenizer.to_str())


def tokenizer(**sections: Any) -> Files:
    return {"tokenizer.json": sections}


def bpe(**options: Any) -> Files:
    return tokenizer(model={**byte_level()["model"], **options})


def pieces(**options: Any) -> Files:
    return tokenizer(model={**marked()["model"], **options})


def steps(*decoders: dict[str, Any]) -> Files:
    return tokenizer(decoder={"type": "Sequence", "decoders": [*decoders, {"type": "Fuse"}]})


def replace(mark: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": mark}, "content": " "}


def state(part: Any) -> Any:
    return json.loads(part.__getstate__())


def flag(name: str, which: int) -> Files:
    tokens = byte_level()["added_tokens"]
    tokens[which][name] = True
    return tokenizer(added_tokens=tokens)


def token(content: str, **flags: Any) -> dict[str, Any]:
    return {"content": content, **dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False), **flags}


def config(**said: Any) -> Files:
    return {"tokenizer_config.json": said}


def named(**templates: str) -> list[dict[str, str]]:
    return [{"name": name, "template": text} for name, text in templates.items()]


def prompts(codec: TextCodec) -> list[str]:
    """A conversation without tools, and with them."""
    return [str(codec.apply_chat_template(TALK, tokenize=False, tools=tools)) for tools in (None, TOOLS)]


def of_processors(codec: TextCodec) -> bool:
    return prompts(codec)[0].startswith("P [")


TRUNCATION = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": {"Fixed": 64},
    "direction": "Left",
    "pad_to_multiple_of": None,
    "pad_id": 5,
    "pad_type_id": 0,
    "pad_token": "x",
}
STARTS = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", START)])
ENDS = processors.TemplateProcessing(single="$A <s>", special_tokens=[("<s>", START)])
TWO = {"the": 0, "x": 1}
Z = token("<z>", special=True)
LEFT = token("</s>", special=True, lstrip=True)
OTHER_ID = ("added token '<z>' has the id 300",)
JINJA, OWN = {"chat_template.jinja": "J {{ messages[0].content }}"}, config(chat_template="C {{ messages }}")
USES, PROCESSOR = "U {{ tools | tojson }}", {"chat_template": "P {{ messages }}"}
FORCED = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
TOKENIZER = {
    "truncation": Case(files=tokenizer(truncation=TRUNCATION)),
    "padding": Case(files=tokenizer(padding=PADDING)),
    "model.dropout": Case(files=bpe(dropout=0.5), says=("dropout=0.5",)),
    "version": Case(files=tokenizer(version="2.0")),
    "added_tokens": Case(files=tokenizer(added_tokens=[*byte_level()["added_tokens"], {"id": NEW, **Z}])),
    "added_tokens.id": Case(files=tokenizer(added_tokens=[{"id": 300, **Z}]), says=OTHER_ID),
    "added_tokens.lstrip": Case(files=flag("lstrip", 0)),
    "added_tokens.rstrip": Case(files=flag("rstrip", 0)),
    "added_tokens.single_word": Case(files=flag("single_word", 1)),
    "added_tokens.normalized": Case(
        files=flag("normalized", 1), beside=tokenizer(normalizer={**replace("y"), "content": "<x>"})
    ),
    "added_tokens.special": Case(files=flag("special", 1)),
    "normalizer": Case(files=tokenizer(normalizer={"type": "NFC"})),
    "pre_tokenizer": Case(files=tokenizer(pre_tokenizer=state(pre_tokenizers.ByteLevel(True)))),
    "post_processor, a start token": Case(files=tokenizer(post_processor=state(STARTS))),
    "post_processor, an end token": Case(
        files=tokenizer(post_processor=state(ENDS)), beside=config(eos_token="<s>"), says=("post_processor='<s>'",)
    ),
    "decoder": Case(base=marked, files=steps(replace("\u2581")), beside=pieces(byte_fallback=True)),
    "decoder: WordPiece, BPEDecoder, CTC": Case(
        files=tokenizer(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}), says=("decoder 'WordPiece'",)
    ),
    "decoder, a step twice": Case(
        base=marked, files=steps(replace("\u2581"), replace("t")), says=("decoder 'Replace' stands there twice",)
    ),
    "model.unk_token": Case(base=marked, files=pieces(unk_token="t")),
    "model.fuse_unk": Case(base=marked, files=pieces(fuse_unk=True)),
    "model.byte_fallback": Case(base=marked, files=pieces(byte_fallback=True)),
    "model.ignore_merges": Case(files=bpe(ignore_merges=True, merges=MERGES[:2]), beside=bpe(merges=MERGES[:2])),
    "model.continuing_subword_prefix": Case(
        files=bpe(continuing_subword_prefix="##", merges=[]), beside=bpe(merges=[])
    ),
    "model.end_of_word_suffix": Case(files=bpe(end_of_word_suffix="</w>", merges=[]), beside=bpe(merges=[])),
    "model.unk_id": Case(
        base=words(models.Unigram([("the", -1.0), ("x", -2.0)], unk_id=0)),
        files=tokenizer(model={"type": "Unigram", "unk_id": 1, "vocab": [["the", -1.0], ["x", -2.0]]}),
    ),
    "model.max_input_chars_per_word": Case(
        base=words(models.WordPiece(TWO, unk_token="x")),
        files=tokenizer(model={**state(models.WordPiece(TWO, unk_token="x")), "max_input_chars_per_word": 2}),
    ),
    "any other key": Case(files=bpe(split_digits=True), says=("model.split_digits=True",)),
}
CONFIG = {
    "eos_token": Case(files=config(eos_token="</s>")),
    "bos_token": Case(
        files=config(bos_token="</s>", chat_template="{{ bos_token }}"), beside=config(chat_template="{{ bos_token }}")
    ),
    "unk_token, pad_token, sep_token, cls_token, mask_token": Case(files=config(pad_token="<x>", unk_token="</s>")),
    "NAME_token": Case(
        files=config(image_token="<z>", chat_template="{{ image_token }}"),
        beside=config(chat_template="{{ image_token }}"),
    ),
    "added_tokens_decoder": Case(
        files=config(added_tokens_decoder={str(START): token("<s>", rstrip=True), str(NEW): Z})
    ),
    "added_tokens_decoder, another id": Case(files=config(added_tokens_decoder={"300": Z}), says=OTHER_ID),
    "extra_special_tokens, additional_special_tokens": Case(
        files=config(additional_special_tokens=["<z>", {"__type": "AddedToken", **LEFT}])
    ),
    "extra_special_tokens as a table, model_specific_special_tokens": Case(
        files=config(extra_special_tokens={"image_token": "<z>"})
    ),
    "split_special_tokens": Case(files=config(split_special_tokens=True)),
    "add_bos_token": Case(
        files=config(add_bos_token=True),
        beside=config(bos_token="<s>"),
        expected=lambda codec: codec.encode(TEXT) == [START, *codec.encode(TEXT, add_special=False)],
    ),
    "add_eos_token": Case(files=config(add_eos_token=True), beside=config(eos_token="<s>")),
    "add_prefix_space": Case(files=config(add_prefix_space=True)),
    "clean_up_tokenization_spaces": Case(
        base=words(models.WordLevel(TWO, unk_token="x")), files=config(clean_up_tokenization_spaces=True)
    ),
    FORCED: Case(files=config(**{FORCED: True})),
    "errors": Case(files=config(errors="ignore")),
    "any other key": Case(files=config(do_lower_case=True), says=("do_lower_case=True",)),
    "chat_template": Case(files=OWN),
    "chat_template, a list of named ones": Case(
        files=config(chat_template=named(default="C {{ messages }}", tool_use=USES))
    ),
    "chat_template, a list without default": Case(
        files=config(chat_template=named(rag="C", tool_use=USES)), says=("'rag', 'tool_use'", "default")
    ),
}
BESIDE = {
    ("special_tokens_map.json", "its roles"): Case(
        files={
            "special_tokens_map.json": {
                "eos_token": "<z>",
                "bos_token": token("</s>", rstrip=True),
                "additional_special_tokens": ["##"],
            }
        }
    ),
    ("special_tokens_map.json", "its roles, beside added_tokens_decoder"): Case(
        files={"special_tokens_map.json": {"eos_token": "<z>"}},
        beside=config(eos_token="<s>", added_tokens_decoder={}),
        says=("special_tokens_map.json: eos_token='<z>'",),
    ),
    ("added_tokens.json", "its tokens"): Case(files={"added_tokens.json": {"<z>": NEW}}),
    ("added_tokens.json", "its tokens, with another id"): Case(
        files={"added_tokens.json": {"<z>": 300}}, says=OTHER_ID
    ),
    ("chat_template.jinja", "the file"): Case(files=JINJA, beside=OWN),
    ("additional_chat_templates", "tool_use.jinja"): Case(
        files={"additional_chat_templates/tool_use.jinja": USES}, beside=JINJA
    ),
    ("additional_chat_templates", "NAME.jinja"): Case(
        files={"additional_chat_templates/rag.jinja": USES}, beside=JINJA, says=("rag=",)
    ),
    ("chat_template.json", "chat_template"): Case(files={"chat_template.json": PROCESSOR}, expected=of_processors),
    ("chat_template.json", "chat_template, beside another"): Case(
        files={"chat_template.json": PROCESSOR},
        beside=JINJA,
        says=("chat_template.json", "chat_template.jinja is taken"),
    ),
    ("processor_config.json", "chat_template"): Case(
        files={"processor_config.json": PROCESSOR}, expected=of_processors
    ),
}
SAMPLING = {
    "do_sample": True,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.9,
    "min_p": 0.1,
    "typical_p": 0.9,
    "repetition_penalty": 1.1,
    "max_length": 20,
    "max_new_tokens": 20,
    "min_length": 2,
    "min_new_tokens": 2,
    "stop_strings": ["a"],
    "num_return_sequences": 2,
    "guidance_scale": 2.0,
    "bad_words_ids": [[3]],
    "sequence_bias": [[[3], 1.0]],
}
CHANGES = {
    "suppress_tokens": [3],
    "begin_suppress_tokens": [3],
    "forced_bos_token_id": 3,
    "forced_eos_token_id": 3,
    "forced_decoder_ids": [[1, 3]],
    "no_repeat_ngram_size": 2,
    "encoder_no_repeat_ngram_size": 2,
    "encoder_repetition_penalty": 2.0,
    "num_beams": 2,
    "num_beam_groups": 2,
    "diversity_penalty": 1.0,
    "length_penalty": 2.0,
    "penalty_alpha": 0.6,
    "dola_layers": "low",
    "exponential_decay_length_penalty": [1, 2.0],
    "epsilon_cutoff": 0.1,
    "eta_cutoff": 0.1,
    "top_h": 0.5,
    "watermarking_config": {"bias": 2.0},
    "constraints": [1],
    "force_words_ids": [[3]],
    "token_healing": True,
    "decoder_start_token_id": 3,
}
GENERATION = {key: Case(files={"generation_config.json": {key: value}}) for key, value in (SAMPLING | CHANGES).items()}
GENERATION["eos_token_id"] = Case(
    files={"generation_config.json": {"eos_token_id": [3, 4]}}, expected=lambda codec: codec.eos_token_ids == {3, 4}
)
FILES = {"tokenizer.json": TOKENIZER, "tokenizer_config.json": CONFIG, "generation_config.json": GENERATION}
CASES = BESIDE | {(file, key): case for file, cases in FILES.items() for key, case in cases.items()}
