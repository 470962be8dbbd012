"""What went wrong, said so that it helps: kinds of failures, tracebacks, how the program was started; secrets masked."""
