"""Which raw value has which id: how values are counted, numbered and looked up, and how a vocabulary grows."""
