"""Algorithms on secret arrays: only operations of the array interface, so each text runs on shares and on plain numbers."""
