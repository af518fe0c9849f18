# The man pages, which the built programs print: scripts/man.
if(NOT DDP_MAN OR DDP_SANITIZE OR CMAKE_CROSSCOMPILING)
  return()
endif()
find_program(DDP_LOWDOWN lowdown)
if(NOT DDP_LOWDOWN)
  message(FATAL_ERROR "lowdown, which makes the man pages, is missing: install it (scripts/setup does), or configure with -DDDP_MAN=OFF")
endif()
set(DDP_MAN_DIR ${CMAKE_BINARY_DIR}/man)
add_custom_command(
  OUTPUT ${DDP_MAN_DIR}/made
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/man ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${DDP_MAN_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch ${DDP_MAN_DIR}/made
  DEPENDS ddpctl ddp-trainer ddp-coordinator ddp-agent ddp-supervisor ddp-store ${CMAKE_SOURCE_DIR}/scripts/man
          ${CMAKE_SOURCE_DIR}/docs/reference/jobfile.md
  VERBATIM)
add_custom_target(man ALL DEPENDS ${DDP_MAN_DIR}/made)
foreach(section man1 man5 man8)
  install(DIRECTORY ${DDP_MAN_DIR}/${section} DESTINATION ${CMAKE_INSTALL_MANDIR})
endforeach()
