# SPDX-License-Identifier: Apache-2.0
"""Everything at once on one state folder, with kills: processes that act, a log of what each was told, and a judge of the files."""
