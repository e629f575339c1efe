"""Algorithms on secret arrays. They use only the array interface, so each runs on shares and on plain numbers."""
