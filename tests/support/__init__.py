"""What tests share: networks and machines to test with, models, and rules that all tests are held to."""
