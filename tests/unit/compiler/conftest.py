# SPDX-License-Identifier: Apache-2.0
from tests.support.builders import builder, llama, one_thread

__all__ = ["builder", "llama", "one_thread"]
