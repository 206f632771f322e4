"""Drafters that write a block of tokens in one pass of their own: one network, one cache, one learner; heads differ."""
