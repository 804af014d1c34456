# SPDX-License-Identifier: Apache-2.0
# Runs one check of c_border on a new state with examples.
file(REMOVE_RECURSE ${STATE})
get_filename_component(folder ${STATE} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
foreach(step fill ${CHECK})
  execute_process(COMMAND ${PROGRAM} ${step} ${BUNDLE} ${STATE} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${step}: ${status}")
  endif()
endforeach()
