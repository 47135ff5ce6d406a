"""How rows travel between trainers and servers, and gradients between trainers."""
