"""Aside: what the records of `outdraft bench` say. Reads JSON lines, measures nothing, knows no engine.

records -> summary (medians, intervals) -> tables | picture | advice
"""
