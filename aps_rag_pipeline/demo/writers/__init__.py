"""One module per source: each turns the demo's plain items into files of the form that the source's reader reads."""
