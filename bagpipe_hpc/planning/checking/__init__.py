"""Carries plans out without ranks, to check them and the policies that make them (`policy_check`)."""
