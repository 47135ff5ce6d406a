"""Placements of whole tables on servers (docs/placements.md)."""
