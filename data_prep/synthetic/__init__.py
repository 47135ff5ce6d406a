"""Synthetic rows: what each kind of file holds, drawn block by block."""
