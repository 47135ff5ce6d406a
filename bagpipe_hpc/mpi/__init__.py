"""Everything that moves bytes between ranks; the only importer of mpi4py."""
