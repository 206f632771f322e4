"""What learners of several methods share."""
