"""What checkpoints cost, beside plain HDF5."""
