"""How the ranks of a job find each other, before they have roles."""
