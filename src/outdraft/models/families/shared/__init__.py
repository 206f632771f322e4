"""What the families have in common: fields, tensor names, rotary scalings."""
