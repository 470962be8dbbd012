"""What the next epoch is: admission, splits and times before it runs; reports and the next manifest after it."""
