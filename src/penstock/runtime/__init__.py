"""What runs in the workers: stage tasks, operator chains and the frames between stages. Plain Python and Arrow; no Spark here."""
