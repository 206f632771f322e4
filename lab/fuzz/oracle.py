"""What `transformers` says of a text: its logits judge every token, the documented rules its end and its characters.

One forward pass over prompt and answer gives the logits of every position; a text whose every token is the one that
they stand for is the text that decoding token by token would write. Now and then `generate` itself is asked as well.
"""

import importlib
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from lab.fuzz.asks import Ask
from lab.fuzz.drive import Text
from lab.fuzz.keyed_draw import DIFFERENT, TIE, judge


class Oracle:
    """A model directory through `transformers`, in float32. Needs the development tools."""

    def __init__(self, directory: Path) -> None:
        transformers: Any = importlib.import_module("transformers")
        transformers.logging.disable_progress_bar()
        load = transformers.AutoModelForCausalLM.from_pretrained
        self._model = load(directory, dtype=torch.float32, attn_implementation="eager").eval()
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        config = self._model.config
        ends = self._model.generation_config.eos_token_id
        self.ends: frozenset[int] = frozenset([ends] if isinstance(ends, int) else ends or ())
        self.max_len: int = config.max_position_embeddings

    def fault(self, ask: Ask, text: Text) -> tuple[str | None, int]:
        """What is wrong with `text`, or None; and how many of its tokens are ties of rounding."""
        prompt, output, ties = ask.prompt, text.token_ids, 0
        with torch.inference_mode():
            ids = torch.tensor([[*prompt, *output]])
            logits = self._model(ids).logits[0, len(prompt) - 1 : -1].double().numpy()  # [len(output), V]
        for i, token in enumerate(output):
            verdict = judge(token, logits[i], ask.settings, prompt, output[:i], self.ends)
            ties += verdict == TIE
            if verdict == DIFFERENT:
                return f"token {i} is {token}, which the logits of transformers do not lead to", ties
        wanted = self._end(ask, output)
        if wanted != (len(output), text.finish_reason):
            return f"it ends after {len(output)} tokens by {text.finish_reason!r}, not {wanted}", ties
        if text.text != (right := self._characters(ask, output)):
            return f"its text is {text.text!r}, not {right!r}", ties
        return None, ties

    def generate(self, ask: Ask) -> list[int]:
        """The greedy answer of `generate` to a request without other settings than `max_tokens` and `ignore_eos`."""
        ids = torch.tensor([ask.prompt])
        ends = None if ask.settings["ignore_eos"] else sorted(self.ends) or None
        with torch.inference_mode():
            whole = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=ask.settings["max_tokens"],
                do_sample=False,
                eos_token_id=ends,
                pad_token_id=0,
            )
        answer: list[int] = whole[0, len(ask.prompt) :].tolist()
        return answer

    def _end(self, ask: Ask, output: Seq[int]) -> tuple[int, str]:
        """After how many tokens this text must end, and why."""
        settings, stops = ask.settings, self._stop_ids(ask)
        longest = min(settings["max_tokens"], self.max_len - len(ask.prompt))
        for i, token in enumerate(output, 1):
            if token in stops or self._first_stop(ask, output, self._whole_characters(output[:i])) is not None:
                return i, "stop"
            if i == longest:
                return i, "length"
        return longest, "length"

    def _stop_ids(self, ask: Ask) -> set[int]:
        return {*ask.settings.get("stop_token_ids", ()), *(() if ask.settings["ignore_eos"] else self.ends)}

    def _characters(self, ask: Ask, output: Seq[int]) -> str:
        """What is shown of it: nothing of an id that ends it, nothing from where a stop string begins."""
        shown = output[:-1] if output and output[-1] in self._stop_ids(ask) else output
        text: str = self._tokenizer.decode(list(shown))
        stop = self._first_stop(ask, output, text)
        return text if stop is None else text[:stop]

    def _first_stop(self, ask: Ask, output: Seq[int], text: str) -> int | None:
        """Where a stop string cuts the text; one that the first `min_tokens` tokens complete does not count."""
        before = len(self._whole_characters(output[: ask.settings.get("min_tokens", 0)]))
        return _first_stop(text, ask.settings.get("stop", ()), before)

    def _whole_characters(self, output: Seq[int]) -> str:
        text: str = self._tokenizer.decode(list(output))
        return text.rstrip("\ufffd")


def _first_stop(text: str, stops: Iterable[str], before: int = 0) -> int | None:
    """Where the stop string begins that ends first behind `before` characters; of several at once the longest."""
    places = ((text.find(stop, max(0, before + 1 - len(stop))), stop) for stop in stops)
    found = [(start + len(stop), -len(stop)) for start, stop in places if start >= 0]
    if not found:
        return None
    end, length = min(found)
    return end + length


def plain_greedy(ask: Ask) -> bool:
    """Whether `Oracle.generate` can answer it."""
    return not ask.settings.get("temperature") and ask.settings.keys() <= {"max_tokens", "ignore_eos", "temperature"}
