# cpack runs this between the installation into its own directory and the making of the package, to adapt each kind of package.
cmake_minimum_required(VERSION 3.25)

# Service files name programs; `from` is cpack's temporary directory.
function(move_units from to bin)
  file(GLOB units ${from}/*.service)
  foreach(unit IN LISTS units)
    get_filename_component(name ${unit} NAME)
    file(READ ${unit} text)
    string(REGEX REPLACE "ExecStart=[^\n]*/(ddp-[a-z]+)" "ExecStart=${bin}/\\1" text "${text}")
    file(REMOVE ${unit})
    file(WRITE ${to}/${name} "${text}")
  endforeach()
endfunction()

set(here ${CMAKE_CURRENT_LIST_DIR})
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
if(CPACK_GENERATOR STREQUAL "TGZ")
  move_units(${root}/lib/systemd/system ${root}/share/ddp/systemd /opt/ddp/bin)
  file(REMOVE_RECURSE ${root}/lib/systemd)
  file(RENAME ${root}/lib/sysusers.d ${root}/share/ddp/sysusers.d)
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${root} -P ${here}/libraries.cmake COMMAND_ERROR_IS_FATAL ANY)
  file(COPY ${here}/BUNDLE.md DESTINATION ${root})
  # Keep only those paths of CUDA's libraries that other machines have too.
  file(GLOB plugins ${root}/lib/ddp/*.so)
  foreach(plugin IN LISTS plugins)
    file(RPATH_SET FILE ${plugin} NEW_RPATH "$ORIGIN/..:/usr/local/cuda/lib64")
  endforeach()
elseif(CPACK_GENERATOR STREQUAL "DEB")
  move_units(${root}/usr/lib/systemd/system ${root}/usr/lib/systemd/system /usr/bin)
  # The emulated GPU, with which the bundle rehearses its checks, is of no use to an installation.
  file(GLOB emulated ${root}/usr/lib/ddp/bin/*_emulated ${root}/usr/lib/ddp/bin/test_attention_cudnn)
  file(REMOVE_RECURSE ${root}/usr/lib/ddp/emulated ${emulated})
  # All libraries come from Debian's own directories.
  file(GLOB programs ${root}/usr/bin/* ${root}/usr/lib/ddp/bin/* ${root}/usr/lib/ddp/*.so)
  foreach(program IN LISTS programs)
    if(NOT IS_SYMLINK ${program})
      file(RPATH_REMOVE FILE ${program})
    endif()
  endforeach()
  file(COPY ${here}/copyright DESTINATION ${root}/usr/share/doc/ddp)
  file(REMOVE ${root}/usr/share/doc/ddp/LICENSE) # Debian has the text in common-licenses, and `copyright` says so
  string(TIMESTAMP day "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${root}/usr/share/doc/ddp/changelog "ddp (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n"
    "  * This version; the commits of its sources say what changed.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${day}\n")
  execute_process(COMMAND gzip -9n ${root}/usr/share/doc/ddp/changelog COMMAND_ERROR_IS_FATAL ANY)
endif()
# Independent of the umask here and of the umask of the checkout.
execute_process(COMMAND chmod -R u=rwX,go=rX ${root} COMMAND_ERROR_IS_FATAL ANY)
