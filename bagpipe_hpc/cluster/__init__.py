"""Hosts and ranks: who takes which role, and what each host has."""
