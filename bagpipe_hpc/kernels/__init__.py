"""Row operations on one device."""
