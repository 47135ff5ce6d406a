"""Slipstream: FAE, where samples that look up rows alone that have stopped moving are left out."""
