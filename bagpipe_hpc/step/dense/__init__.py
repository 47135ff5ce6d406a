"""The dense half of a step: its passes, who sums and computes it, when its weights are updated, copies compared."""
