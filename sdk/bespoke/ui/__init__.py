# SPDX-License-Identifier: Apache-2.0
"""A page in the browser for one user's model: its examples, training as it goes on, answers before and after."""
