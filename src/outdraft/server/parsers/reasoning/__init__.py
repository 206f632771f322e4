"""How models mark what they think, one file for each; `parsers/thinking.py` says what a file offers."""
