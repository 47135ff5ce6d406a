"""What arguments are: their parser, their types, their order, and those that several commands have."""
