"""The processes that share a preparation: how they divide the work, and what they tell each other."""
