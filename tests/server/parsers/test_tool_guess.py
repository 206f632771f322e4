"""Which parser a chat template is taken for, by the words with which published templates teach how to call.

A model whose form is not among the parsers gets none, so that tools are refused by name.
"""

import pytest

from outdraft.server.parsers.found import TOOLS, find

HERMES = [
    # Qwen
    r"""<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}""",
    """<tool_call>\n{"arguments": <args-dict>, "name": <function-name>}\n</tool_call>""",  # Hermes 2 Pro
    r"""{{- '<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}""",  # SmolLM3, Granite 4
    """<tool_call>{"name": "function_name", "arguments": {"a": 1}}</tool_call>""",  # EXAONE 4
    # of a Python format string
    """<tool_call>\n{{"name": <function-name>, "arguments": <args-dict>}}\n</tool_call>""",
]
LLAMA = [
    """'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    <|start_header_id|>ipython<|end_header_id|>""",
    r"""<|python_tag|> \"Respond in the format {\"name\": function name, \"parameters\": ...}\" """,
]
MISTRAL = ["{{ '[TOOL_CALLS] [' }}", "[TOOL_CALLS]{{ name }}[ARGS]{{ arguments }}"]
NONE = [
    # GLM-4.6
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value></tool_call>",
    "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key></tool_call>",  # GLM-4.7
    "<tool_calls>\n<tool_call>tool_name1\n```json\n{...}\n```\n</tool_call></tool_calls>",  # HunYuan
    # Qwen3-Coder
    "<tool_call>\n<function=example_function_name>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    '<tool_call>\n<function=f>\n</function> and never <tool_call>{"name": "f"}',
    """<|python_tag|> <function=example_function_name>{"example_name": "example_value"}</function>""",  # Functionary
    """ipython <function>{"name": function name, "parameters": ...}</function>""",
    "ipython and [func_name1(params_name1=params_value1)]",
    '<|tool_call|>[{"name": ...',  # Granite 3
    "<minimax:tool_call>\n<invoke name=...>",
    "<TOOLCALL>[{...}]</TOOLCALL>",  # Nemotron Nano 2
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}",  # Kimi K2
    "<\uff5ctool\u2581calls\u2581begin\uff5c>",  # DeepSeek
]


@pytest.mark.parametrize(
    ("name", "template"),
    [
        (name, one)
        for name, known in (("hermes", HERMES), ("llama3", LLAMA), ("mistral", MISTRAL), (None, NONE))
        for one in known
    ],
)
def test_a_template_is_taken_for_what_it_teaches(name: str | None, template: str) -> None:
    found = find("tool_call_parser", TOOLS, "auto", template)
    assert (found and found.name) == name
