# SPDX-License-Identifier: Apache-2.0
# `kernels`: one source for each instruction set, with its own flags; dispatch.cpp asks the processor which one to run.
include(CheckCXXCompilerFlag)

set(KERNELS src/kernels)
set(KERNEL_SOURCES ${KERNELS}/products.cpp ${KERNELS}/prepared.cpp ${KERNELS}/elementwise.cpp ${KERNELS}/dispatch.cpp ${KERNELS}/baseline.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(_avx2 -mavx2 -mfma -mf16c)
  list(APPEND KERNEL_SOURCES ${KERNELS}/avx2.cpp ${KERNELS}/avx512.cpp)
  set_property(SOURCE ${KERNELS}/avx2.cpp APPEND PROPERTY COMPILE_OPTIONS ${_avx2})
  # GCC 12 takes the operand of its own intrinsics that no mask selects for a variable somebody forgot.
  set(_avx512 ${_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -Wno-uninitialized
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set_property(SOURCE ${KERNELS}/avx512.cpp APPEND PROPERTY COMPILE_OPTIONS ${_avx512})
  set(_amx -mamx-tile -mamx-bf16)
  list(JOIN _amx " " _amx_flags)
  check_cxx_compiler_flag("${_amx_flags}" BESPOKE_HAS_AMX)
  if(BESPOKE_HAS_AMX AND CMAKE_SYSTEM_NAME STREQUAL Linux)
    list(APPEND KERNEL_SOURCES ${KERNELS}/amx.cpp)
    set_property(SOURCE ${KERNELS}/amx.cpp APPEND PROPERTY COMPILE_OPTIONS ${_avx512} ${_amx})
    set_property(SOURCE ${KERNELS}/dispatch.cpp APPEND PROPERTY COMPILE_DEFINITIONS BESPOKE_AMX)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  list(APPEND KERNEL_SOURCES ${KERNELS}/neon.cpp)
endif()

add_library(kernels OBJECT ${KERNEL_SOURCES})
target_include_directories(kernels PUBLIC src)
if(BESPOKE_FUZZ)  # the same with sanitizers (fuzz/CMakeLists.txt); a source's flags are those of this folder alone
  add_library(fuzzed_kernels OBJECT EXCLUDE_FROM_ALL ${KERNEL_SOURCES})
endif()
