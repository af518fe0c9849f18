# cpack runs this after it has made the package. Before CMake 4.3 cpack stores the owners that it finds on the disk. `tar` as root
# restores them, so the account that made a bundle could replace programs that root runs. All members of the bundle must belong to root.
cmake_minimum_required(VERSION 3.25)
if(NOT CPACK_GENERATOR STREQUAL "TGZ")
  return() # cpack itself makes root the owner in a .deb
endif()
get_filename_component(above ${CPACK_TEMPORARY_INSTALL_DIRECTORY} DIRECTORY)
get_filename_component(top ${CPACK_TEMPORARY_INSTALL_DIRECTORY} NAME)
set(time "")
if(DEFINED ENV{SOURCE_DATE_EPOCH}) # see settings.cmake
  set(time --mtime=@$ENV{SOURCE_DATE_EPOCH})
endif()
execute_process(COMMAND tar --sort=name --owner=0 --group=0 --numeric-owner ${time} -C ${above} -cf - ${top}
                COMMAND gzip -n OUTPUT_FILE ${CPACK_PACKAGE_FILES} COMMAND_ERROR_IS_FATAL ANY)
