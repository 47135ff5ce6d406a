"""Settings of the property tests."""

from hypothesis import settings

# A deadline would make a test's outcome depend on what else the machine does; pytest-timeout ends what hangs.
settings.register_profile("bagpipe", deadline=None)
settings.load_profile("bagpipe")
