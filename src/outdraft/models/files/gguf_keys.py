"""Keys of a GGUF file beside those of its architecture: what it is, and what of its vocabulary is left aside."""

import logging
from fnmatch import fnmatchcase

from outdraft.codecs.gguf import ROLES
from outdraft.codecs.tokenizer_file import OFF, note
from outdraft.options.errors import ModelLoadError
from outdraft.options.shown import shown
from outdraft.weights.gguf import GgufFile

_BLOCKS = 2  # general.quantization_version that the gguf package reads
_NO_MODELS = {
    "adapter": "merge it into its model (llama.cpp's llama-export-lora), and load what comes of it",
    "imatrix": "give the model that was rounded with it",
    "mmproj": "give the GGUF file of the text model",
}
_OF_VOCABULARY = tuple(  # read, or without effect: kinds of segments, roles that only requests to fill a gap have
    """
    model pre tokens merges scores token_type eos_token_ids e??_token_id fim_*_token_id add_bos_token add_space_prefix
    token_type_count prefix_token_id suffix_token_id middle_token_id
    """.split()
)
_KNOWN = (
    *ROLES.values(),
    *(f"tokenizer.ggml.{name}" for name in _OF_VOCABULARY),
    *("tokenizer.chat_template*", "general.*", "split.*", "quantize.*"),
)
_NEVER_ADDED = "nothing is put behind a prompt"
_ASKED = "not the defaults here: give them with each request"
_LEFT_OUT = "not applied: the text follows the model's own distribution"
_EMBEDDINGS = "the file is made for embeddings; outdraft writes text with it"
_UNKNOWN = "not read here"


def require_model(file: GgufFile) -> None:
    """Raise `ModelLoadError` where the file is something else, or rounded by a version that is not read."""
    kind = file.get("general.type", "adapter" if file.keys("adapter.") else "model")
    if file.get("general.architecture") == "clip":
        kind = "mmproj"  # also in files of earlier converters, which do not say so
    if kind != "model":
        cure = _NO_MODELS.get(kind, "give the GGUF file of the model") if isinstance(kind, str) else ""
        raise ModelLoadError(f"{file.path}: general.type={shown(kind)}: the file is no model; {cure}")
    version = file.get("general.quantization_version", _BLOCKS)
    if version != _BLOCKS and file.rounding():
        raise ModelLoadError(
            f"{file.path}: general.quantization_version={shown(version)} is not read, only {_BLOCKS}: take a newer file"
        )


def note_unread(file: GgufFile, *, has_tokenizer: bool) -> None:
    """`has_tokenizer`: one that stands beside the file is taken in place of its vocabulary."""
    arch, beside = str(file.get("general.architecture")), ["tokenizer.*"] * has_tokenizer
    groups: dict[str, list[str]] = {_NEVER_ADDED: [], _ASKED: [], _LEFT_OUT: [], _EMBEDDINGS: [], _UNKNOWN: []}
    for key in file.keys(""):
        if key in ("tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_sep_token"):
            groups[_NEVER_ADDED].append(key)
        elif key.startswith("general.sampling."):
            groups[_ASKED].append(key)
        elif key == "tokenizer.ggml.suppress_tokens":
            groups[_LEFT_OUT].append(key)
        elif key == f"{arch}.pooling_type":
            groups[_EMBEDDINGS].append(key)
        elif not any(fnmatchcase(key, own) for own in (f"{arch}.*", *_KNOWN, *beside)):
            groups[_UNKNOWN].append(key)
    for why, keys in groups.items():
        level = logging.WARNING if why in (_LEFT_OUT, _EMBEDDINGS) else logging.INFO
        said = {key: value for key in keys if (value := file.get(key)) not in OFF}
        note(file.path.name, said, why, level=level)
