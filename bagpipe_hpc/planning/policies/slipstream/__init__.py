"""Slipstream: FAE, but samples are left out that look up only rows that have stopped moving."""
