"""Native parts of the dense half of a step."""
