"""The files beside a model's weights that say how texts are read and written. They are copied together: without one of
them a prompt may become other tokens.
"""

import shutil
from pathlib import Path

_TOKENIZER = tuple(
    """
    tokenizer* special_tokens_map.json added_tokens.json vocab.* merges.txt *.jinja additional_chat_templates/*.jinja
    chat_template.json processor_config.json
    """.split()
)
_DEFAULTS = "generation_config.json"


def copy_text_files(source: Path, directory: Path, *, defaults: bool = True) -> None:
    """From a model directory, or from beside a GGUF file. `defaults`: generation_config.json too, of a directory."""
    home, of_directory = (source.parent, False) if source.is_file() else (source, True)
    for pattern in (*_TOKENIZER, *[_DEFAULTS] * (defaults and of_directory)):
        for file in home.glob(pattern):
            if file.is_file():
                new = directory / file.relative_to(home)
                new.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, new)
