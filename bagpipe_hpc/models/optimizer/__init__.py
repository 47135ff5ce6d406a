"""The optimizer of the dense half: which one, its rate over the steps, and what clips its gradients."""
