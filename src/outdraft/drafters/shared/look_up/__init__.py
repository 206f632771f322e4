"""Look-ups: indices over texts, the trie that merges their continuations, and the drafter that all look-ups share."""
