"""One local page over many runs, live and read only. Folders may be anybody's: nothing in one is believed."""
