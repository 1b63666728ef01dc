"""What a schedule is: the IR, its document form, and verdicts as plain data."""
