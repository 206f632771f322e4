"""What drafters that read the target's last state share."""
