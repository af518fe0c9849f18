# ddp_library(name SOURCES a.c b.c [PUBLIC libs...] [PRIVATE libs...])
function(ddp_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${DDP_WARNINGS})
  target_link_libraries(${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
endfunction()

# ddp_program(name SOURCES main.c LINK libs...): a program in build/bin, which is installed into bin
function(ddp_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${DDP_WARNINGS})
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  # The same RPATH as installed: CMake reserves space for another one with an empty entry, which the loader reads as the current
  # directory.
  set_target_properties(${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# `ctest -j` counts a test as two processors, and a test that mostly waits as one (ddp_tests_wait), so that it runs beside
# other tests.
set(DDP_TEST_PROCESSORS PROCESSORS 2)

# Builds the programs of all tests that need no others.
add_custom_target(test_programs)

# Hundreds of test programs are linked, and these linkers need half of the time of GNU ld. Installed programs are linked by the
# compiler's usual linker. (gold warns about symbols of clang's sanitizers.)
include(CheckLinkerFlag)
check_linker_flag(C -fuse-ld=lld DDP_HAVE_LLD)
check_linker_flag(C -fuse-ld=gold DDP_HAVE_GOLD)
set(DDP_TEST_LINK_OPTIONS)
if(DDP_HAVE_LLD)
  set(DDP_TEST_LINK_OPTIONS -fuse-ld=lld)
elseif(DDP_HAVE_GOLD AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(DDP_TEST_LINK_OPTIONS -fuse-ld=gold)
endif()

# Unit tests of an emulated processor have more time, and some of them have deadlines of their own (DDP_TEST_SLOW).
set(DDP_UNIT_ENV "${DDP_SANITIZER_ENV}")
if(DDP_TEST_SLOW GREATER 1)
  list(APPEND DDP_UNIT_ENV DDP_TEST_SLOW=${DDP_TEST_SLOW})
endif()

# Scripts have more time under AddressSanitizer.
set(DDP_SCRIPT_ENV "${DDP_SANITIZER_ENV}")
if(DDP_SANITIZE MATCHES "address")
  list(APPEND DDP_SCRIPT_ENV DDP_TEST_SLOW=4)
endif()

# ddp_unit_test(name LINK libs... [SOURCES extra.c] [TIMEOUT seconds]): a cmocka program from name.c
function(ddp_unit_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  math(EXPR limit "${arg_TIMEOUT} * ${DDP_TEST_SLOW}")
  add_executable(${name} ${name}.c ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${DDP_WARNINGS})
  target_link_libraries(${name} PRIVATE ${arg_LINK} PkgConfig::CMOCKA)
  target_link_options(${name} PRIVATE ${DDP_TEST_LINK_OPTIONS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(test_programs ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} LABELS "${arg_LABELS}" ${DDP_TEST_PROCESSORS}
                       ENVIRONMENT "${DDP_UNIT_ENV}")
endfunction()

# ddp_script_test(name SCRIPT path [ARGS ...] [TIMEOUT s] [LABELS l]): exit code 0 passes, 77 skips and prints the reason
function(ddp_script_test name)
  cmake_parse_arguments(arg "SERIAL" "SCRIPT;TIMEOUT" "ARGS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT} ${arg_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77
                       ${DDP_TEST_PROCESSORS}
                       ENVIRONMENT "DDP_BIN=${CMAKE_BINARY_DIR}/bin;DDP_SOURCE=${PROJECT_SOURCE_DIR};DDP_BUILD=${CMAKE_BINARY_DIR};${DDP_SCRIPT_ENV}")
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL TRUE)
  endif()
endfunction()

# ddp_fuzz_target(name LINK libs... [SOURCES extra.c] [SECONDS s]): fuzz_<name>.c holds LLVMFuzzerTestOneInput, and
# seeds/<name>/ its first inputs. With the fuzz preset this is a libFuzzer program, which the test runs for some seconds. In
# every other build a driver runs the seeds and a fixed set of mutations of them.
function(ddp_fuzz_target name)
  cmake_parse_arguments(arg "" "SECONDS" "SOURCES;LINK" ${ARGN})
  set(target fuzz_${name})
  set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/seeds/${name})
  if(NOT arg_SECONDS)
    set(arg_SECONDS 2)
  endif()
  add_executable(${target} ${target}.c ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE ${DDP_WARNINGS})
  target_link_libraries(${target} PRIVATE ${arg_LINK})
  target_link_options(${target} PRIVATE ${DDP_TEST_LINK_OPTIONS})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(DDP_FUZZ)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/corpus/${name})
    add_test(NAME ${target} COMMAND ${target} -max_total_time=${arg_SECONDS} -timeout=10 -rss_limit_mb=2048
             -max_len=65536 -print_final_stats=1 -artifact_prefix=${CMAKE_BINARY_DIR}/corpus/
             ${CMAKE_BINARY_DIR}/corpus/${name} ${seeds})
    add_dependencies(fuzz_targets ${target})
  else()
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/driver.c)
    add_test(NAME ${target} COMMAND ${target} ${seeds})
  endif()
  set_tests_properties(${target} PROPERTIES TIMEOUT 120 LABELS fuzz ${DDP_TEST_PROCESSORS})
endfunction()
if(DDP_FUZZ)
  add_custom_target(fuzz_targets)
endif()

# ddp_tests_wait(names...): tests of this folder that take less than a third of a processor
function(ddp_tests_wait)
  set_tests_properties(${ARGN} PROPERTIES PROCESSORS 1)
endfunction()

# ddp_tests_long(names...): tests of this folder that only `scripts/test --long` runs, because they need much of a processor and
# others test the same parts more briefly
function(ddp_tests_long)
  foreach(name ${ARGN})
    set_property(TEST ${name} APPEND PROPERTY LABELS long)
  endforeach()
endfunction()

# ddp_tests_first(names...): slow tests of this folder, which `ctest -j` starts before others, so that none of them is left at the end
function(ddp_tests_first)
  set_tests_properties(${ARGN} PROPERTIES COST 100)
endfunction()
