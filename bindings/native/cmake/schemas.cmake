# SPDX-License-Identifier: Apache-2.0
# The published schemas, compiled in: what the SDK writes and what the core takes are one document.
set(BESPOKE_SCHEMA_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/schemas.cpp)
set(_schemas "")
foreach(name plan_schema manifest_schema round_document_schema plan_rules)
  string(REPLACE "_schema" ".schema" _name ${name})
  set(_file ${CMAKE_CURRENT_SOURCE_DIR}/../schema/${_name}.json)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_file})
  file(READ ${_file} _text HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," _bytes "${_text}")
  string(APPEND _schemas "extern const unsigned char ${name}[] = {${_bytes}0};\nextern const unsigned long ${name}_size = sizeof(${name}) - 1;\n")
endforeach()
file(CONFIGURE OUTPUT ${BESPOKE_SCHEMA_SOURCE} CONTENT "namespace bespoke {\n${_schemas}}\n" @ONLY)
