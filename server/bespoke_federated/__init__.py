# SPDX-License-Identifier: Apache-2.0
"""The server of a federation: it opens rounds, combines what devices measured, and holds the shared adapter.

Of bespoke it imports `rules`, `plan` and `bundle`, and so no torch.
"""
