"""The processes that share a preparation: what each of them does, and what they tell each other."""
