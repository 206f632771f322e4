"""Look-ups: indices over texts, the trie that merges what they say, and the drafter that all look-ups share."""
