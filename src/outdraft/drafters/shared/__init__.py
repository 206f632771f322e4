"""What several drafters need and no paper owns: an n-gram index, tries, chain and tree growth, draft-side caches."""
