"""From a command line to a program that starts ready to be recorded."""
