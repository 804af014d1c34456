# SPDX-License-Identifier: Apache-2.0
# Contents of a wheel under bespoke/core: the tool, the library, the headers, and core.json, which says what they were built with;
# and the four libraries of ExecuTorch that the core links, with their licence: 14 MB. The package executorch has 700 MB, which only
# a build needs.
# One version for the SDK and the core.
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/../../sdk/bespoke/version.py _version REGEX "^__version__ = ")
string(REGEX MATCH "[0-9][^\"]*" _version "${_version}")
if(_version)
  set_property(SOURCE src/api/api.cpp APPEND PROPERTY COMPILE_DEFINITIONS BESPOKE_VERSION="${_version}")
endif()

if(SKBUILD)
  set(BESPOKE_DESTINATION bespoke/core)
  set(_executorch_libraries "$ORIGIN")
else()
  set(BESPOKE_DESTINATION .)
  set(_executorch_libraries "${EXECUTORCH_RUNTIME_LIBRARY_DIR}")
endif()

set_target_properties(bespoke_core PROPERTIES INSTALL_RPATH "${_executorch_libraries}")
set_target_properties(bespoke-core PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${_executorch_libraries}")
install(TARGETS bespoke-core RUNTIME DESTINATION ${BESPOKE_DESTINATION}/bin)
install(TARGETS bespoke_core LIBRARY DESTINATION ${BESPOKE_DESTINATION}/lib)
if(TARGET bespoke_engine_mlx)
  install(TARGETS bespoke_engine_mlx LIBRARY DESTINATION ${BESPOKE_DESTINATION}/lib)
endif()
install(FILES include/bespoke.h include/bespoke_base.h include/bespoke_engine.h include/module.modulemap DESTINATION ${BESPOKE_DESTINATION}/include)
if(SKBUILD AND BESPOKE_EXECUTORCH)
  foreach(_library ${EXECUTORCH_LIBRARIES})  # imported targets from CMake 3.28 on, else paths, some within linker options
    if(TARGET ${_library})
      set(_library $<TARGET_FILE:${_library}>)
    else()
      string(REGEX MATCH "[^,]+\\.so" _library "${_library}")
    endif()
    install(FILES ${_library} DESTINATION ${BESPOKE_DESTINATION}/lib)
  endforeach()
  # Loaded from the folder of libexecutorch.so when a program is for the NPU, and never linked.
  install(FILES ${EXECUTORCH_RUNTIME_LIBRARY_DIR}/libexecutorch_backend_qnn.so DESTINATION ${BESPOKE_DESTINATION}/lib OPTIONAL)
endif()
# Licences: that of ExecuTorch from its package, those of the pinned sources as third_party/sources.json names them.
file(GLOB _licence ${executorch_DIR}/../../../executorch-*.dist-info/licenses/LICENSE)
if(SKBUILD AND _licence)
  install(FILES ${_licence} DESTINATION ${BESPOKE_DESTINATION}/licences RENAME executorch.txt)
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS third_party/sources.json)
file(READ third_party/sources.json _sources)
string(JSON _last LENGTH "${_sources}")
math(EXPR _last "${_last} - 1")
foreach(_number RANGE ${_last})
  string(JSON _package MEMBER "${_sources}" ${_number})
  string(JSON _licence GET "${_sources}" ${_package} licence_file)
  install(FILES third_party/${_package}/${_licence} DESTINATION ${BESPOKE_DESTINATION}/licences RENAME ${_package}.txt)
endforeach()

if(BESPOKE_EXECUTORCH)
  string(REGEX MATCH "^[0-9.]+" _executorch_version "${EXECUTORCH_BUILD_VERSION}")
  set(_engine "\"${_executorch_version}\"")
else()
  set(_engine null)
endif()
if(TARGET bespoke_engine_mlx)
  set(_mlx_engine "\"${BESPOKE_MLX_VERSION}\"")
else()
  set(_mlx_engine null)
endif()
file(CONFIGURE OUTPUT core.json @ONLY CONTENT [[{
  "compiler": "@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@",
  "processor": "@CMAKE_SYSTEM_PROCESSOR@",
  "build_type": "@CMAKE_BUILD_TYPE@",
  "executorch": @_engine@,
  "mlx": @_mlx_engine@
}
]])
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/core.json DESTINATION ${BESPOKE_DESTINATION}/bin)
