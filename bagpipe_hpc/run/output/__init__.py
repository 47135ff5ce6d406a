"""What a run leaves behind: its folder, which job began it, and how it is asked to stop there."""
