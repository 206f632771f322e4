"""DeepSeek R1 and its distilled models: the answer begins with a thought, and often without the opening mark."""

from outdraft.server.parsers.thinking import ReasoningFormat

FORMAT = ReasoningFormat(
    name="deepseek_r1", open="<think>", close="</think>", always=True, template_has=("</think>", "<｜Assistant｜>")
)
