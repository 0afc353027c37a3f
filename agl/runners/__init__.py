"""Dequeue, execute one attempt, report; and the pools of runners that do so."""
