"""The dense half of the models, and how its gradients are summed over the trainers."""
