"""Rooms of `bench_fallback.py`: what to run (shapes, settings), how to load an engine (worker, traffic), what came out
(records, statistics) and how to show it (report, plot). Only `worker` imports SGLang, and only in a process of its own.
"""
