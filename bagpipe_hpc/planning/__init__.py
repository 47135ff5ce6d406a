"""Pure decisions: which rows to fetch, keep, reduce and retire, and which slots they live in."""
