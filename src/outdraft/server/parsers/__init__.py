"""What a model writes, taken apart for the wire: what it thinks, what it says, and the functions that it calls.

    tools/      one file for each way in which models write calls        hermes, llama3, mistral
    reasoning/  one file for each way in which they mark their thinking  qwen3, deepseek_r1

A file is the registration: it holds a `FORMAT`. `found.py` finds it by its name, or guesses it by the chat template.
"""
