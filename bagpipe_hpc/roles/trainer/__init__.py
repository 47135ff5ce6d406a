"""The trainer: its main loop, the parts that it is put together from, and what it tells the others."""
