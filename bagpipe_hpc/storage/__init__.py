"""Files: prepared clicks and checkpoints; the only importer of h5py."""
