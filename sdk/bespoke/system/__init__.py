# SPDX-License-Identifier: Apache-2.0
"""What the operating system says and enforces: footprint, memory limits, imports."""
