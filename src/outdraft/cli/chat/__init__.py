"""What `outdraft chat` is made of: who answers, what was said, how it is written, and the commands."""
