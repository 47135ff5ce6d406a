"""`bagpipe export`: writes a trained model for a service that does not have this package."""
