"""Steps, functions and state, watched while an epoch runs again."""
