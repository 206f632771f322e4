"""Layer 0: the words of the domain. Data and protocols; standard library and torch types, nothing that computes."""
