# SPDX-License-Identifier: Apache-2.0
"""Interface to the operating system: memory footprint and limits, malloc, file descriptors, quiet imports."""
