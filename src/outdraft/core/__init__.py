"""Floor 0: the words of the domain. Data and protocols only; standard library and torch types, nothing that computes."""
