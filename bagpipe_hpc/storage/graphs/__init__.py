"""Graphs whose nodes have rows, and the samples whose look-ups are drawn from them."""
