"""What drafters at feature level share: networks that read the target's hidden states and, behind the text, their own."""
