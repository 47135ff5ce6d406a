"""Placements of whole tables on servers (docs/policies.md)."""
