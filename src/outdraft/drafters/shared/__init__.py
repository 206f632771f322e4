"""Code that several drafters use: an n-gram index, tries, chain and tree growth, draft-side caches."""
