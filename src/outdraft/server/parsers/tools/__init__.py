"""How models write calls of functions, one file for each; `parsers/tool_format.py` says what a file offers."""
