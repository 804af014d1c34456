// SPDX-License-Identifier: Apache-2.0
#pragma once

#define TARGET_OS_OSX 1
