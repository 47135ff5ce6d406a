"""A search for what should become of dense columns before they are trained on."""
