"""Commands that go on showing until they are stopped."""
