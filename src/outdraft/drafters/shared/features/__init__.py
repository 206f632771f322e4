"""What drafters at feature level share: networks that read the target's states and, behind the text, their own."""
