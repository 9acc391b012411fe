"""Pictures of a trace, as SVG: a file for each, and a function of its name in it."""
