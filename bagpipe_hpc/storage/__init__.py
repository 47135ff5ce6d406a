"""Files: prepared data, checkpoints, plans, exported models and locks; the only importer of h5py."""
