"""Training: of drafts (`outdraft train`), of trials that compare them, and of the zoo's tokenizers and decoders.

python -m outdraft.training lab/zoo/target.toml --data DIR --out DIR [--resume]
"""
