"""Who may ask what, and how much: hosts, tokens, rates, sizes, the audit log."""
