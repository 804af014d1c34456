# SPDX-License-Identifier: Apache-2.0
# libbespoke_static.a for apps that link the core statically, as an XCFramework does: one object with all that the core is made of, whose
# only symbols are the header's functions. Two libraries with another SQLite or another ExecuTorch in them then do not meet. Built by
# its name alone: bespoke_static.
set(_object ${CMAKE_CURRENT_BINARY_DIR}/bespoke_static.o)
set(BESPOKE_STATIC ${CMAKE_CURRENT_BINARY_DIR}/libbespoke_static.a)
add_executable(bespoke_object EXCLUDE_FROM_ALL ${CORE_OBJECTS})
set_target_properties(bespoke_object PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # what is linked again is no program
target_link_options(bespoke_object PRIVATE -r -nostdlib)
target_link_libraries(bespoke_object PRIVATE nlohmann_json sqlite sodium sha256)

if(BESPOKE_PLATFORM STREQUAL apple)
  if(BESPOKE_EXECUTORCH)
    target_sources(bespoke_object PRIVATE $<TARGET_OBJECTS:executorch_engine>)
    target_link_libraries(bespoke_object PRIVATE executorch_engine)  # with the runtime, which is static there
  endif()
  target_link_options(bespoke_object PRIVATE -Wl,-exported_symbols_list,${BESPOKE_SYMBOLS})
  set(_hide ${CMAKE_COMMAND} -E copy $<TARGET_FILE:bespoke_object> ${_object})
else()
  if(BESPOKE_EXECUTORCH)  # the runtime stays a library that the app links: the wheel has no other
    target_sources(bespoke_object PRIVATE $<TARGET_OBJECTS:executorch_engine>)
  endif()
  # A symbol that is hidden must not be looked for in the copy of its group that another object has.
  target_link_options(bespoke_object PRIVATE -Wl,--force-group-allocation)
  set(_hide ${CMAKE_OBJCOPY} --keep-global-symbols=${BESPOKE_SYMBOLS} $<TARGET_FILE:bespoke_object> ${_object})
endif()
add_custom_command(OUTPUT ${BESPOKE_STATIC}
  COMMAND ${_hide}
  COMMAND ${CMAKE_COMMAND} -E rm -f ${BESPOKE_STATIC}
  COMMAND ${CMAKE_AR} rcs ${BESPOKE_STATIC} ${_object}
  DEPENDS bespoke_object ${BESPOKE_SYMBOLS} VERBATIM)
add_custom_target(bespoke_static DEPENDS ${BESPOKE_STATIC})
