# SPDX-License-Identifier: Apache-2.0
from tests.native.conftest import native_build
from tests.unit.adapter.codes import code

__all__ = ["code", "native_build"]
