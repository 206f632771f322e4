"""A text of token ids and the order of its suffixes in one memory-mapped file: made once, read by many.

`documents` reads texts, `build` makes the file, `file` is its format and looks up in it.
"""
