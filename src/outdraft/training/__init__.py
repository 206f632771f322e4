"""How the zoo is made: recipes for a tokenizer, a target, a distilled draft, an early-exit head and an EAGLE head.

python -m outdraft.training recipes/zoo/target.toml --data DIR --out DIR [--resume]
"""
