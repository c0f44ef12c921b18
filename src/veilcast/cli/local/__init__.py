"""Networks on one computer: a file per mode, and what all modes share."""
