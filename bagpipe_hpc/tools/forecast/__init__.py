"""`bagpipe plan`: finds from a run's plans what it would move, hold and wait for, and can save these plans."""
