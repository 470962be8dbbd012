"""What the benchmarks share: input, contenders in processes of their own, references, reports."""
