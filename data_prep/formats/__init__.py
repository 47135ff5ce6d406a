"""Source formats: what raw rows look like, and how they become columns."""
