# SPDX-License-Identifier: Apache-2.0
# core_sources(VARIABLE PART...): the sources of folders of src; of `platform` what all systems share and what this one has.
# compiled_together(TARGET...): eight sources of a folder are one for the compiler, which then reads the headers once. So a name in an
# unnamed namespace stands once in a folder. With -DBESPOKE_UNITY=OFF each source is compiled alone.
option(BESPOKE_UNITY "Compile the sources of a folder together" ON)
if(CMAKE_SYSTEM_NAME MATCHES "^(Darwin|iOS)$")
  set(BESPOKE_PLATFORM apple)
else()
  set(BESPOKE_PLATFORM linux)
endif()

function(core_sources variable)
  set(sources "")
  foreach(part ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src/${part}/*.cpp)
    if(part STREQUAL platform)
      file(GLOB of_system CONFIGURE_DEPENDS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src/platform/${BESPOKE_PLATFORM}/*.cpp)
      list(APPEND found ${of_system})
    endif()
    string(REPLACE "/" "_" name ${part})
    set(number 0)
    foreach(source ${found})
      math(EXPR group "${number} / 8")
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${name}_${group})
      math(EXPR number "${number} + 1")
    endforeach()
    list(APPEND sources ${found})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

function(compiled_together)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ${BESPOKE_UNITY} UNITY_BUILD_MODE GROUP)
endfunction()
