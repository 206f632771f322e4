"""The text part of a multimodal checkpoint: a language model inside a wrapper for pictures or sound.

    config.json   {"model_type": "mistral3", "text_config": {...}, "vision_config": {...}, "eos_token_id": ...}
    weights       model.language_model.layers.0...  (older: language_model.model.layers.0...)  -> model.layers.0...
                  model.vision_tower..., multi_modal_projector...                              -> not read

Token ids may stand at the top only. What the wrapper says of pictures is not looked at: a
prompt of text alone is computed by the text part alone.
"""

from collections.abc import Container, Mapping

from outdraft.models.families.shared.fields import all_ends
from outdraft.weights.renamed import NamedTensors
from outdraft.weights.source import TensorSource

_INHERITED = ("bos_token_id", "eos_token_id", "torch_dtype", "dtype", "quantization_config", "outdraft_variant")
TEXT = {  # the beginning of a name there -> here
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "lm_head.": "lm_head.",
}
OTHERS = tuple(
    """
    model.visual. visual. model.vision_tower. vision_tower. model.vision_model. vision_model. model.audio_tower.
    audio_tower. model.embed_vision. embed_vision. model.embed_audio. embed_audio. model.multi_modal_projector.
    multi_modal_projector. mtp.
    """.split()
)  # what a wrapper holds besides


def is_wrapper(raw: Mapping[str, object]) -> bool:
    """Whether this config.json has the language model's settings in a table of their own."""
    return isinstance(raw.get("text_config"), dict)


def text_kind(raw: Mapping[str, object]) -> str | None:
    """The `model_type` of the language model in a config.json; None: there is none."""
    text = raw["text_config"] if is_wrapper(raw) else raw
    assert isinstance(text, Mapping)
    kind = text.get("model_type", f"{raw.get('model_type')}_text" if text is not raw else None)
    return kind if isinstance(kind, str) else None


def text_part(raw: Mapping[str, object], tensors: Container[str]) -> dict[str, object]:
    """The text model's config.json, with what only the wrapper says; ends of a text are those of both.

    tensors: the names of the text model's. Where one config says that the head is tied and another that it is not, or
    none says anything, a head that is stored is not tied.
    """
    text = raw["text_config"]
    assert isinstance(text, dict)
    above = {key: raw[key] for key in _INHERITED if raw.get(key) is not None}
    below = {key: value for key, value in text.items() if value is not None or key not in _INHERITED}
    part = {"model_type": f"{raw.get('model_type')}_text", **above, **below}
    part["tie_word_embeddings"] = "lm_head.weight" not in tensors
    part["eos_token_id"] = all_ends(above.get("eos_token_id"), below.get("eos_token_id"))
    return part


def text_tensors(source: TensorSource) -> TensorSource:
    """The text model's tensors under the names that they have without a wrapper; all others but the known parts of
    pictures and sound keep theirs, to be reported."""
    return NamedTensors(source, {here: name for name in source if (here := text_name(name)) is not None})


def text_name(name: str) -> str | None:
    """A tensor's name without a wrapper; None: it is a known part of pictures or sound."""
    prefix = next((one for one in TEXT if name.startswith(one)), "")
    return None if name.startswith(OTHERS) else TEXT.get(prefix, "") + name.removeprefix(prefix)
