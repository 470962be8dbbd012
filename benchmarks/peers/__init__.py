"""The other contenders, each a module with `main(parameters) -> result` (see `harness.contenders`)."""
