"""The look-ahead policy (BagPipe, SOSP 2023, section 3): its rules, in NumPy and in native code."""
