"""The command line: arguments in, one call, output out. No logic here."""
