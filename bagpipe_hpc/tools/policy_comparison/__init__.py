"""`bagpipe compare-policies`: policies on equal terms, in rows and bytes by plans, in time and quality by runs."""
