# SPDX-License-Identifier: Apache-2.0
# MLX from its Python package (0.31.1, which has headers and library): BESPOKE_MLX is its folder, or ON for the one of the Python at hand.
# The engine is a library of its own, libbespoke_engine_mlx, opened by name when somebody asks for it: the core is not linked to MLX's
# 20 MB, and runs where there is none.
if(NOT IS_DIRECTORY "${BESPOKE_MLX}")
  find_package(Python3 COMPONENTS Interpreter QUIET)
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import importlib.util as u; print(list(u.find_spec('mlx').submodule_search_locations)[0])"
    OUTPUT_VARIABLE _mlx OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
else()
  set(_mlx ${BESPOKE_MLX})
endif()
find_library(MLX_LIBRARY mlx PATHS ${_mlx}/lib NO_DEFAULT_PATH)
if(NOT MLX_LIBRARY OR NOT EXISTS ${_mlx}/include/mlx/version.h)
  message(FATAL_ERROR "BESPOKE_MLX=${BESPOKE_MLX}: no headers and library of MLX there. Install it: pip install 'mlx[cpu]==0.31.1'")
endif()
file(STRINGS ${_mlx}/include/mlx/version.h _numbers REGEX "define MLX_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^;0-9]" "" _numbers "${_numbers}")
list(JOIN _numbers "." BESPOKE_MLX_VERSION)
if(NOT BESPOKE_MLX_VERSION STREQUAL "0.31.1")
  message(FATAL_ERROR "BESPOKE_MLX=${BESPOKE_MLX}: MLX ${BESPOKE_MLX_VERSION}, and programs are of 0.31.1. Install that: pip install 'mlx[cpu]==0.31.1'")
endif()

file(GLOB MLX_ENGINE_SOURCES CONFIGURE_DEPENDS src/engines/mlx/*.cpp)
add_library(bespoke_engine_mlx MODULE ${MLX_ENGINE_SOURCES})
target_compile_features(bespoke_engine_mlx PRIVATE cxx_std_20)  # MLX's headers
target_include_directories(bespoke_engine_mlx PRIVATE src include)
target_include_directories(bespoke_engine_mlx SYSTEM PRIVATE ${_mlx}/include)
target_link_libraries(bespoke_engine_mlx PRIVATE ${MLX_LIBRARY})
add_dependencies(bespoke-core bespoke_engine_mlx)  # where somebody builds the tool, it finds the engine beside it
if(SKBUILD)
  set_target_properties(bespoke_engine_mlx PROPERTIES INSTALL_RPATH "$ORIGIN/../../../mlx/lib")  # both are packages of one Python
else()
  set_target_properties(bespoke_engine_mlx PROPERTIES INSTALL_RPATH "${_mlx}/lib")
endif()
