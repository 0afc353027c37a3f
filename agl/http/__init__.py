"""HTTP/1.1 for the calls that agl makes and answers by the thousand, between its parts and to model servers.

A client's connections are kept and found in O(1), and an exchange is one write and one wake-up: 0.02 to 0.06 ms of
processor time, where httpx takes 0.6 to 1.8 ms (benchmarks/store_client.py). Redirects are not followed.
"""
