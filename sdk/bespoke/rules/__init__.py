# SPDX-License-Identifier: Apache-2.0
"""Rules that every runtime shares, in every language: noise, batches, schedule, sampling, the rows to judge, the report."""
