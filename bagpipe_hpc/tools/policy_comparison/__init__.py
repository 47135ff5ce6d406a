"""`bagpipe compare-policies`: policies on equal terms; rows and bytes from plans, time and quality from runs."""
