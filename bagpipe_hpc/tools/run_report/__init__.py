"""`bagpipe report`: a page about one run or several."""
