"""Plans of a run in a folder: a file of plans, and a manifest that says what they were made for (docs/plan.md)."""
