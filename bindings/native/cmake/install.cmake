# SPDX-License-Identifier: Apache-2.0
# What a wheel carries, under bespoke/core: the tool, the library, the header, and core.json, which says what they were built with.
# ExecuTorch's libraries are those of its own wheel, two folders up and over.
# One version for the SDK and the core.
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/../../sdk/bespoke/__init__.py _version REGEX "^__version__ = ")
string(REGEX MATCH "[0-9][^\"]*" _version "${_version}")
if(_version)
  set_property(SOURCE src/api.cpp APPEND PROPERTY COMPILE_DEFINITIONS BESPOKE_VERSION="${_version}")
endif()

if(SKBUILD)
  set(BESPOKE_DESTINATION bespoke/core)
  set(_executorch_libraries "$ORIGIN/../../../executorch/lib")
else()
  set(BESPOKE_DESTINATION .)
  set(_executorch_libraries "${EXECUTORCH_RUNTIME_LIBRARY_DIR}")
endif()

set_target_properties(bespoke_core PROPERTIES INSTALL_RPATH "${_executorch_libraries}")
set_target_properties(bespoke-core PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${_executorch_libraries}")
install(TARGETS bespoke-core RUNTIME DESTINATION ${BESPOKE_DESTINATION}/bin)
install(TARGETS bespoke_core LIBRARY DESTINATION ${BESPOKE_DESTINATION}/lib)
install(FILES include/bespoke.h DESTINATION ${BESPOKE_DESTINATION}/include)

if(BESPOKE_EXECUTORCH)
  string(REGEX MATCH "^[0-9.]+" _executorch_version "${EXECUTORCH_BUILD_VERSION}")
  set(_engine "\"${_executorch_version}\"")
else()
  set(_engine null)
endif()
file(CONFIGURE OUTPUT core.json @ONLY CONTENT [[{
  "compiler": "@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@",
  "processor": "@CMAKE_SYSTEM_PROCESSOR@",
  "build_type": "@CMAKE_BUILD_TYPE@",
  "executorch": @_engine@
}
]])
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/core.json DESTINATION ${BESPOKE_DESTINATION}/bin)
