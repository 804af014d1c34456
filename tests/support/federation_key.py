# SPDX-License-Identifier: Apache-2.0
"""The private key of servers in tests: the same in all processes, which share bundles. It protects nothing."""

PRIVATE = b"""-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ5IQJbfKe4bm76b3oSfhJUBIT58Vrs0guN4bW4rGA3y
-----END PRIVATE KEY-----
"""
