option(DDP_FAULTS "Compile in the named fault points (test builds)" OFF)
option(DDP_FUZZ "Build the libFuzzer targets (clang)" OFF)
set(DDP_SANITIZE "" CACHE STRING "Sanitizers for every target, as in -fsanitize=")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Installed programs look for libraries beside themselves first, so that a bundle of both may lie anywhere. An RPATH (no
# RUNPATH) holds for the libraries' own libraries, too.
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")
add_link_options(LINKER:--disable-new-dtags)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

add_compile_definitions(_GNU_SOURCE DDP_VERSION="${PROJECT_VERSION}")
if(DDP_FAULTS)
  add_compile_definitions(DDP_FAULTS)
endif()
if(DDP_SANITIZE)
  add_compile_options(-fsanitize=${DDP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${DDP_SANITIZE})
endif()
if(DDP_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Our own code only; generated code is compiled without these. Tables leave out fields that are zero.
set(DDP_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
                 -Wwrite-strings -Wno-missing-field-initializers -Werror)

# The libraries are not built with ThreadSanitizer: what happens inside them is not its business.
set(DDP_SANITIZER_ENV "TSAN_OPTIONS=ignore_noninstrumented_modules=1"
    "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0")
