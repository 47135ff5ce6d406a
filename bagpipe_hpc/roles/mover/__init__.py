"""The mover, a trainer's second thread: rows that come and rows that leave, batches, and when it sleeps."""
