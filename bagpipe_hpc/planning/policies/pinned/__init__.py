"""The look-ahead rule, but a plan's hottest rows stay with the trainers until the segment ends."""
