"""Native parts of preparing data: texts to columns, values to ids."""
