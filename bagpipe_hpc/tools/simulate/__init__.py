"""`bagpipe simulate`: predicts steps on a cluster that is not at hand, from real plans (docs/simulate.md)."""
