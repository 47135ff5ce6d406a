"""What a trained model becomes for a service without this package: `bagpipe export`."""
