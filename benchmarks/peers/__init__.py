"""The same training in plain PyTorch, TorchRec and here; the peers' own programs are in `programs`."""
