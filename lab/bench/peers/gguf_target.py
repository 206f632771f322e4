"""A target that is one GGUF file, and its draft, in the forms that engines read; made once and kept on the shelf.

whole        the dequantized weights as a Hugging Face directory, with tokenizer.json and our companions named
whole_draft  the draft, with the table that it borrows from the target, as such a directory

Either becomes a GGUF file by `weights.whole_gguf`.
"""

import json
from pathlib import Path

from outdraft.bench.shelf import Shelf
from outdraft.engine.naming.roles import FILE as COMPANIONS
from outdraft.engine.naming.roles import read_companions
from outdraft.models.files.load import load_model, save_model
from outdraft.models.files.load_codec import load_codec
from outdraft.models.target.tables import tables_of
from outdraft.options.errors import ConfigError
from outdraft.weights.digest import digest_weights


def whole(target: Path, dtype: str, shelf: Shelf) -> Path:
    """The target's weights, dequantized to this number format."""
    companions = read_companions(target)

    def write(out: Path) -> None:
        save_model(load_model(target, dtype), out)
        _add_tokenizer(target, out)
        (out / COMPANIONS).write_text(json.dumps(companions, indent=2) + "\n", encoding="utf-8")

    return shelf.get(f"{_stem(target)}-{dtype}", [digest_weights(target), dtype, companions], write)


def whole_draft(target: Path, shelf: Shelf) -> Path:
    """The draft model beside the target. Raises `ConfigError` if there is none."""
    draft = read_companions(target).get("draft_model", {}).get("any")
    if draft is None:
        raise ConfigError(f"{target} has no draft model beside it")

    def write(out: Path) -> None:
        save_model(load_model(draft, tables=tables_of(load_model(target))), out)
        _add_tokenizer(target, out)

    return shelf.get(f"{_stem(target)}-draft", [digest_weights(target), digest_weights(Path(draft))], write)


def _stem(target: Path) -> str:
    return target.name.removesuffix(".gguf").replace(".", "-")


def _add_tokenizer(target: Path, out: Path) -> None:
    codec = load_codec(target)
    if codec is None:
        raise ConfigError(f"{target} has no tokenizer")
    codec._tokenizer.save(str(out / "tokenizer.json"))
    roles = {name: one for name, one in codec.special_tokens.items() if isinstance(one, str)}
    (out / "tokenizer_config.json").write_text(json.dumps(roles, indent=2) + "\n", encoding="utf-8")
