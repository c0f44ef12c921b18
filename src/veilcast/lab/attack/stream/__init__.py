"""Attackers on foiled streams: which of the candidates is true?"""
