# SPDX-License-Identifier: Apache-2.0
# `kernels`: one source for each instruction set, with its own flags; dispatch.cpp takes the best one that features.cpp has found.
include(CheckCXXCompilerFlag)

set(KERNELS src/kernels)
set(KERNEL_SOURCES ${KERNELS}/linear.cpp ${KERNELS}/head.cpp ${KERNELS}/direct.cpp ${KERNELS}/prepared.cpp ${KERNELS}/vector.cpp
  ${KERNELS}/elementwise.cpp ${KERNELS}/attention.cpp ${KERNELS}/features.cpp ${KERNELS}/dispatch.cpp ${KERNELS}/sets/baseline.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(_avx2 -mavx2 -mfma -mf16c)
  list(APPEND KERNEL_SOURCES ${KERNELS}/sets/avx2.cpp ${KERNELS}/sets/avx512.cpp ${KERNELS}/sets/avx512_vnni.cpp)
  set_property(SOURCE ${KERNELS}/sets/avx2.cpp APPEND PROPERTY COMPILE_OPTIONS ${_avx2})
  # GCC 12 takes the operand of its own intrinsics that no mask selects for a variable somebody forgot.
  set(_avx512 ${_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -Wno-uninitialized
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set_property(SOURCE ${KERNELS}/sets/avx512.cpp APPEND PROPERTY COMPILE_OPTIONS ${_avx512})
  set_property(SOURCE ${KERNELS}/sets/avx512_vnni.cpp APPEND PROPERTY COMPILE_OPTIONS ${_avx512} -mavx512vnni)
  set(_amx -mamx-tile -mamx-bf16)
  list(JOIN _amx " " _amx_flags)
  check_cxx_compiler_flag("${_amx_flags}" BESPOKE_HAS_AMX)
  if(BESPOKE_HAS_AMX AND CMAKE_SYSTEM_NAME STREQUAL Linux)
    list(APPEND KERNEL_SOURCES ${KERNELS}/sets/amx.cpp)
    set_property(SOURCE ${KERNELS}/sets/amx.cpp APPEND PROPERTY COMPILE_OPTIONS ${_avx512} ${_amx})
    set_property(SOURCE ${KERNELS}/features.cpp ${KERNELS}/dispatch.cpp APPEND PROPERTY COMPILE_DEFINITIONS BESPOKE_AMX)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  list(APPEND KERNEL_SOURCES ${KERNELS}/sets/neon.cpp ${KERNELS}/sets/neon_dot.cpp ${KERNELS}/sets/neon_i8mm.cpp)
  # Instructions in an order for small cores, which keep it; large ones find their own. GCC must not order them before it gives them
  # registers, or it keeps sums of a tile on the stack.
  set_property(SOURCE ${KERNELS}/sets/neon.cpp APPEND PROPERTY COMPILE_OPTIONS -mtune=cortex-a55
    $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
  set_property(SOURCE ${KERNELS}/sets/neon_dot.cpp APPEND PROPERTY COMPILE_OPTIONS -march=armv8.2-a+dotprod)
  set_property(SOURCE ${KERNELS}/sets/neon_i8mm.cpp APPEND PROPERTY COMPILE_OPTIONS -march=armv8.2-a+dotprod+i8mm)
endif()

add_library(kernels OBJECT ${KERNEL_SOURCES})
target_include_directories(kernels PUBLIC src)
if(BESPOKE_FUZZ)  # the same with sanitizers (fuzz/CMakeLists.txt); a source's flags are those of this folder alone
  add_library(fuzzed_kernels OBJECT EXCLUDE_FROM_ALL ${KERNEL_SOURCES})
endif()
