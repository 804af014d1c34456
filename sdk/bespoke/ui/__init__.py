# SPDX-License-Identifier: Apache-2.0
"""The page of `bespoke ui`: one user's examples, the progress of training, and answers before and after it."""
