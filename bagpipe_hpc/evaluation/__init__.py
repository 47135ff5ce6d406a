"""How good predictions are, whoever computed which of them, and what a run makes of that. Pure."""
