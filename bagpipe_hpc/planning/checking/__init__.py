"""Carries plans out without ranks, to check them (`planning.plan_check`)."""
