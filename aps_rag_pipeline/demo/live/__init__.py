"""Services on loopback that answer in the shapes of the real ones, from the files of a demo facility."""
