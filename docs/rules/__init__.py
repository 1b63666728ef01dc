"""The pages of the rules.  A package, so that they are installed and a report can show them."""
