"""Row operations, beside a plain copy of as many bytes."""
