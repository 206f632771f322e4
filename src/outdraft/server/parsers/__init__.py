"""What a model writes, taken apart for the wire: what it thinks, what it says, and the functions that it calls.

    tools/        one file for each way in which models write calls: hermes, llama3, mistral
    thinking.py   the ways in which they mark what they think: qwen3, deepseek_r1

`found.py` finds a format by its name, or guesses it by the chat template.
"""
