"""How models mark what they think, and the reader of an answer that thinks before it speaks.

    "<think>\nLet me see.\n</think>\n\nIt is four."   ->   reasoning "Let me see."   content "It is four."

A chat template may have written the opening mark at the end of the prompt, or both marks, where the model is asked not
to think. An answer that goes on with a message is a thought where one is open in that message. Blanks next to the marks
are left out. However the answer is cut into pieces, the same comes out.
"""

from dataclasses import dataclass
from typing import Literal

from outdraft.server.parsers.call_reader import begun


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """One way in which models mark what they think."""

    name: str
    open: str
    close: str
    always: bool  # the model thinks at once, even where the template has not written the opening mark
    template_has: tuple[str, ...]  # by these a chat template is known to be written for it

    @property
    def marks(self) -> tuple[str, ...]:
        """What a tokenizer may keep as special tokens."""
        return self.open, self.close

    def fits(self, template: str) -> bool:
        return all(one in template for one in self.template_has)

    def reader(self, prompt: str, message: str | None = None) -> "ThinkingReader":
        """For one answer to this prompt. `message`: the one that the answer goes on with."""
        if message is not None:
            is_open = message.rfind(self.open) > message.rfind(self.close)
            at_mark = message.rstrip().endswith((self.open, self.close))
            return ThinkingReader(self, "inside" if is_open else "after", blanks=at_mark)
        end = prompt.rstrip()
        if end.endswith(self.close):
            return ThinkingReader(self, "after")
        return ThinkingReader(self, "begins", inside=self.always or end.endswith(self.open))


_DEEPSEEK_R1 = ReasoningFormat(  # and its distilled models, which often leave the opening mark out
    name="deepseek_r1", open="<think>", close="</think>", always=True, template_has=("</think>", "<｜Assistant｜>")
)
_QWEN3 = ReasoningFormat(  # and QwQ and others: a thought before the answer, or at once where the template opens it
    name="qwen3", open="<think>", close="</think>", always=False, template_has=("<think>", "<|im_start|>")
)
REASONING = {one.name: one for one in (_DEEPSEEK_R1, _QWEN3)}


class ThinkingReader:
    """One for an answer."""

    def __init__(
        self,
        form: ReasoningFormat,
        state: Literal["begins", "inside", "after"],
        *,
        inside: bool = False,
        blanks: bool = True,
    ) -> None:
        self._form = form
        self._state = state
        self._inside = inside  # it begins with a thought also without an opening mark
        self._held = ""
        self._blanks = blanks  # at the beginning of a part, where blanks are left out

    @property
    def is_thinking(self) -> bool:
        """Whether what comes next is a thought, for all that is known."""
        return self._state == "inside" or (self._state == "begins" and self._inside)

    @property
    def is_unsure(self) -> bool:
        """Whether what has come so far may be the beginning of a thought, or of what is said."""
        return self._state == "begins" and not self._inside

    @property
    def may_think(self) -> bool:
        """Whether a thought may still come: not where the prompt has closed it."""
        return self._state != "after"

    def rules(self) -> str:
        """Rules of a grammar in Lark's notation, of which `thought` is what stands before the answer."""
        inner = f'THINK_BLANKS: /[ \\n]{{1,4}}/\nthinking[suffix="{self._form.close}"]: /(?s:.*)/'
        if self.is_thinking:
            return f"thought: thinking THINK_BLANKS?\n{inner}"
        return f'thought: ("{self._form.open}" thinking THINK_BLANKS?)?\n{inner}'

    def push(self, text: str) -> tuple[str, str]:
        """What is certain after so much more: reasoning, and content."""
        return self._read(text, final=False)

    def finish(self) -> tuple[str, str]:
        return self._read("", final=True)

    def _read(self, text: str, *, final: bool) -> tuple[str, str]:
        self._held += text
        reasoning = ""
        if self._state == "begins" and not self._begin(final=final):
            return "", ""
        if self._state == "inside":
            before, mark, rest = self._held.partition(self._form.close)
            if not mark:
                certain = (
                    len(before) if final else len(before[: len(before) - begun(before, self._form.close)].rstrip())
                )
                self._held = before[certain:]
                return self._lead(before[:certain].rstrip() if final else before[:certain]), ""
            reasoning = self._lead(before.rstrip())
            self._held, self._state, self._blanks = rest, "after", True
        content, self._held = self._held, ""
        return reasoning, self._lead(content)

    def _begin(self, *, final: bool) -> bool:
        """Whether it is known how the answer begins."""
        bare = self._held.lstrip()
        if bare.startswith(self._form.open):
            self._held, self._state = bare[len(self._form.open) :], "inside"
        elif not final and self._form.open.startswith(bare):
            return False
        else:
            self._state = "inside" if self._inside else "after"
            self._blanks = self._inside
        return True

    def _lead(self, text: str) -> str:
        """Without the blanks at the beginning of a part."""
        if self._blanks:
            text = text.lstrip()
            self._blanks = not text
        return text
