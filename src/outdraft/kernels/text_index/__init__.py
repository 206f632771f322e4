"""Indices over texts in native code: suffix arrays, suffix trees and suffix automata."""
