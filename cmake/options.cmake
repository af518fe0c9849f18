option(DDP_ONLY_PLUGIN "Build only the GPU plugin, which needs none of the programs' libraries" OFF)
option(DDP_FAULTS "Compile in the named fault points (test builds)" OFF)
option(DDP_FUZZ "Build the libFuzzer targets (clang)" OFF)
option(DDP_WERROR "Treat warnings of the compiler as errors (the presets of scripts/test do)" OFF)
option(DDP_MAN "Make the man pages, except for sanitizers and other processors" ON)
option(DDP_GPU_EMULATION "Build the tests of the GPU's kernels on an emulated GPU" ON)
set(DDP_TEST_SLOW 1 CACHE STRING "Multiplies the time limits of unit tests (8 for an emulated processor)")
set(DDP_SANITIZE "" CACHE STRING "Sanitizers for every target, as in -fsanitize=")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Installed programs look for libraries in ../lib first, so that a bundle of both works in any directory. An RPATH (not a
# RUNPATH) also applies to the libraries that these libraries need.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
add_link_options(LINKER:--disable-new-dtags)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

# Products and sums round on their own on every processor. clang fuses them where the processor can, for example on 64-bit ARM; GCC
# does not in ISO C. Kernels that may fuse them say so (trainer/device/CMakeLists.txt).
add_compile_options($<$<COMPILE_LANGUAGE:C>:-ffp-contract=off>)

add_compile_definitions(_GNU_SOURCE DDP_VERSION="${PROJECT_VERSION}")
if(DDP_FAULTS)
  add_compile_definitions(DDP_FAULTS)
endif()
if(DDP_SANITIZE)
  add_compile_options(-fsanitize=${DDP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${DDP_SANITIZE})
  # GCC defines these macros, clang of Debian 12 does not.
  if(DDP_SANITIZE MATCHES "address")
    add_compile_definitions(__SANITIZE_ADDRESS__=1)
  endif()
  if(DDP_SANITIZE MATCHES "thread")
    add_compile_definitions(__SANITIZE_THREAD__=1)
  endif()
endif()
if(DDP_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Every program is hardened: it is position-independent, binds all symbols at start into tables that are read-only afterwards, and
# has no executable stack, guarded stacks, checked copies, and landing pads for indirect jumps if the processor supports them.
# tests/unit/deploy/hardened checks the installed programs. Checked copies need an optimizing compiler, and sanitizers have checks
# of their own.
include(CheckPIESupported)
include(CheckCCompilerFlag)
check_pie_supported(LANGUAGES C)
add_link_options(LINKER:-z,relro,-z,now LINKER:-z,noexecstack)
add_compile_options($<$<COMPILE_LANGUAGE:C>:-fstack-protector-strong>)
check_c_compiler_flag(-fstack-clash-protection DDP_HAVE_STACK_CLASH)
check_c_compiler_flag(-fcf-protection=full DDP_HAVE_CF_PROTECTION)
if(DDP_HAVE_STACK_CLASH)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fstack-clash-protection>)
endif()
if(DDP_HAVE_CF_PROTECTION)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-fcf-protection=full>)
endif()
if(NOT DDP_SANITIZE AND NOT DDP_FUZZ)
  add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:C>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
endif()

# For our own code; generated code is compiled without these. Tables may leave out fields that are zero.
set(DDP_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
                 -Wwrite-strings -Wno-missing-field-initializers)
if(DDP_WERROR)
  list(APPEND DDP_WARNINGS -Werror)
endif()

# The system's libraries are not built with ThreadSanitizer, so it ignores their modules.
set(DDP_SANITIZER_ENV "TSAN_OPTIONS=ignore_noninstrumented_modules=1"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0")
