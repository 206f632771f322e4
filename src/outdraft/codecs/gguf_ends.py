"""Which tokens end a text by the metadata of a GGUF file: those that it names by their role, and those whose text says
so, of whatever type. The file has room for one id of each role, and models have more of them; llama.cpp, too, goes by
the text. Of its texts </s> is left out, which is a word of Gemma's and the end token by its role elsewhere.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError

_ROLES = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
_TEXTS = frozenset(
    """
    <|eot_id|> <|im_end|> <|end|> <end_of_turn> <|endoftext|> <|eom_id|> <EOT> _<EOT> <|end_of_text|>
    <end_of_utterance> <eos> <turn|> <|tool_response> <|fim_pad|> <|fim_repo|> <|repo_name|> <|file_sep|>
    <fim_pad> <reponame> <\uff5cend\u2581of\u2581sentence\uff5c>
    """.split()
)


def end_ids(get: Callable[[str], Any], of: str) -> frozenset[int]:
    """The ids. `get`: the value of a metadata key, None if it is absent. Raises `ModelLoadError`, which names `of`."""

    def read(name: str, kind: Any) -> Any:
        key = f"tokenizer.ggml.{name}"
        return check_value(key, get(key), kind, of=of, error=ModelLoadError)

    roles = (read(f"{role}_token_id", int | None) for role in _ROLES)
    by_text = [i for i, name in enumerate(read("tokens", Seq[str] | None) or ()) if name in _TEXTS]
    listed = read("eos_token_ids", Seq[int] | None) or ()
    return frozenset((*(int(one) for one in roles if one is not None), *listed, *by_text))
