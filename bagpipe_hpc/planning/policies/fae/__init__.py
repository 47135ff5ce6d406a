"""FAE: batches of hot samples, whose rows stay with every trainer, and cold batches, whose rows do not stay."""
