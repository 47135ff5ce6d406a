"""FAE: batches of hot samples alone, whose rows stay with every trainer, and cold batches, whose rows do not."""
