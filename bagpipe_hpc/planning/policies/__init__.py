"""The policies that come with the package, beside the look-ahead rule (docs/policies.md)."""
