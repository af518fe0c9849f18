# cpack reads this once for each kind of package. The version is that of the project. Between releases (tag v<version>) the
# commit's time (UTC) and name are appended, so that a later commit is a later version for dpkg. All files get that time, or
# SOURCE_DATE_EPOCH if it is set, so that one build directory always gives the same bytes. If files differ from the commit, the present
# time (or SOURCE_DATE_EPOCH) is appended, too.
set(version ${CPACK_PACKAGE_VERSION_MAJOR}.${CPACK_PACKAGE_VERSION_MINOR}.${CPACK_PACKAGE_VERSION_PATCH})
# The checkout may belong to another account, for example in a container. CMake has already run its code, so git may trust it, too.
function(git out)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env TZ=UTC git -c safe.directory=* -C ${CPACK_DDP_SOURCE} ${ARGN}
                  OUTPUT_VARIABLE said ERROR_VARIABLE why RESULT_VARIABLE code OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
  if(NOT code EQUAL 0) # with the version of a release, dpkg would not see an upgrade
    message(FATAL_ERROR "cannot determine the commit of ${CPACK_DDP_SOURCE}: ${why}")
  endif()
  set(${out} "${said}" PARENT_SCOPE)
endfunction()
if(EXISTS ${CPACK_DDP_SOURCE}/.git)
  git(tag tag --points-at HEAD --list v${version})
  git(commit log -1 --date=format-local:%Y%m%d.%H%M%S --format=%cd.%h)
  git(seconds log -1 --format=%ct)
  git(changed status --porcelain --untracked-files=no)
  if(NOT tag OR changed)
    string(APPEND version +${commit})
  endif()
  if(changed) # each package of a changed tree is a later version
    string(TIMESTAMP now %Y%m%d.%H%M%S UTC)
    string(APPEND version .changed.${now})
  endif()
endif()
set(CPACK_PACKAGE_VERSION ${version})
if(seconds AND NOT DEFINED ENV{SOURCE_DATE_EPOCH})
  set(ENV{SOURCE_DATE_EPOCH} ${seconds})
endif()

execute_process(COMMAND uname -m OUTPUT_VARIABLE machine OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CPACK_PACKAGE_FILE_NAME ddp-${version}-linux-${machine})
if(CPACK_GENERATOR STREQUAL "DEB")
  execute_process(COMMAND dpkg --print-architecture OUTPUT_VARIABLE machine OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(CPACK_PACKAGE_FILE_NAME ddp_${version}_${machine})
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(SHLIBDEPS_EXECUTABLE ${CPACK_DDP_SOURCE}/deploy/package/shlibdeps)
endif()
