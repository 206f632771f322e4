"""What a user may say, and how errors answer: values, their checks, limits in size, and the one error class."""
