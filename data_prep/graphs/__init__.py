"""Graphs: edges and nodes as text become the file of a graph and shards of nodes."""
