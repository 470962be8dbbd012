"""What the next epoch is. Before it runs: admission, splits and times. After it: its reports, checked and merged, and the
next manifest; or whether a failed one is tried again. Pure, but for asking sources what there is.
"""
