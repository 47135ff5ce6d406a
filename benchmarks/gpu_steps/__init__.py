"""What a GPU does in a trainer's steps."""
