"""What is checked and decided before any rank trains."""
