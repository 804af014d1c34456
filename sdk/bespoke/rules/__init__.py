# SPDX-License-Identifier: Apache-2.0
"""What every runtime computes alike, in every language: noise, batches, schedule, sampling, which rows are judged, the report."""
