"""A decoder's passes in native code: packed weights, products, whole layers, and the choice of the next token."""
