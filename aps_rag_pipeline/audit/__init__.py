"""Proof that catalog, indexes, marts, releases and projection say the same, and mending where they do not.

The audit asks the functions of the stages what they would write now and compares that with what stands there, in both
directions, by ids and content, in batches of records.
"""
