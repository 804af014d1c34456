# SPDX-License-Identifier: Apache-2.0
# ExecuTorch from its Python wheel (variables and not imported targets: those need CMake 3.28), or as it installs itself when it is built
# from its sources, as for Android: static libraries, which bring along the options to link whole what registers itself.
if(NOT executorch_DIR)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(list(u.find_spec('executorch').submodule_search_locations)[0])"
    OUTPUT_VARIABLE _executorch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(executorch_DIR ${_executorch}/share/cmake)
endif()
find_package(executorch REQUIRED CONFIG)
if(TARGET optimized_native_cpu_ops_lib)
  set(EXECUTORCH_LIBRARIES optimized_native_cpu_ops_lib xnnpack_backend extension_threadpool executorch_core)  # no operator twice
  set(EXECUTORCH_COMPILE_DEFINITIONS C10_USING_CUSTOM_GENERATED_MACROS)
endif()
# Another engine, a profiler, a delegate opened when a program asks for it: by the name of the file, not of the folders above it.
list(FILTER EXECUTORCH_LIBRARIES EXCLUDE REGEX "(openvino|etdump|qnn)[^/]*$")

file(GLOB ENGINE_SOURCES CONFIGURE_DEPENDS src/engines/executorch/*.cpp)
add_library(executorch_engine OBJECT ${ENGINE_SOURCES})
target_include_directories(executorch_engine PUBLIC src include)
target_include_directories(executorch_engine SYSTEM PUBLIC ${EXECUTORCH_INCLUDE_DIRS})
target_compile_definitions(executorch_engine PUBLIC ${EXECUTORCH_COMPILE_DEFINITIONS} BESPOKE_EXECUTORCH)
target_compile_definitions(executorch_engine PRIVATE BESPOKE_EXECUTORCH_VERSION="${executorch_VERSION}")
target_compile_definitions(small_objects PRIVATE BESPOKE_EXECUTORCH)
# Kernels and backends register themselves when they are loaded, so the linker must not drop what nothing names.
if(APPLE)  # whose linker keeps every library
  target_link_libraries(executorch_engine PUBLIC ${EXECUTORCH_LIBRARIES})
else()
  target_link_libraries(executorch_engine PUBLIC -Wl,--no-as-needed ${EXECUTORCH_LIBRARIES} -Wl,--as-needed)
endif()
list(APPEND CMAKE_BUILD_RPATH ${EXECUTORCH_RUNTIME_LIBRARY_DIR})
