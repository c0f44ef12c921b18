"""Publish and subscribe without revealing who you are, and measure how anonymous you really are."""
