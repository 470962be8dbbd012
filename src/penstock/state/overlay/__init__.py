"""What an epoch's task has read and changed of keyed state, and the handles through which functions do so."""
