"""Qwen 3, QwQ and others: <think> ... </think> before the answer, or at once where the template has opened it."""

from outdraft.server.parsers.thinking import ReasoningFormat

FORMAT = ReasoningFormat(
    name="qwen3", open="<think>", close="</think>", always=False, template_has=("<think>", "<|im_start|>")
)
