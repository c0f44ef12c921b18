"""The record: results that a repository keeps, with their origin, and the means to derive them again."""
