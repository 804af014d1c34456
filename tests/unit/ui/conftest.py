# SPDX-License-Identifier: Apache-2.0
from tests.unit.ui.pages import browser, bundle, desk, notes, page, state  # noqa: F401
