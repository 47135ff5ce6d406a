"""Where rows lie: `bagpipe place` searches for a plan, `bagpipe compare-placements` counts what each placement asks."""
