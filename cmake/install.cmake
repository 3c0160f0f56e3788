# cmake --install build/release --prefix <where>
include(GNUInstallDirs)
if(TARGET atoll)
  install(TARGETS atoll RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # The program itself writes its manual and completions, so they cannot grow stale.
  install(CODE "
    set(from \"$<TARGET_FILE:atoll>\")
    set(to \"${PROJECT_BINARY_DIR}/install\")
    file(MAKE_DIRECTORY \"\${to}\")
    foreach(kind \"manual;atoll.1\" \"completions bash;atoll\" \"completions zsh;_atoll\"
                 \"completions fish;atoll.fish\")
      list(GET kind 0 words)
      list(GET kind 1 file)
      separate_arguments(words)
      execute_process(COMMAND \"\${from}\" \${words} OUTPUT_FILE \"\${to}/\${file}\"
                      COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
    execute_process(COMMAND gzip -9nf \"\${to}/atoll.1\" COMMAND_ERROR_IS_FATAL ANY)")
  set(made ${PROJECT_BINARY_DIR}/install)
  install(FILES ${made}/atoll.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${made}/atoll DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${made}/_atoll DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  install(FILES ${made}/atoll.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
install(DIRECTORY packaging/systemd/ DESTINATION lib/systemd/system FILES_MATCHING PATTERN *.service)
install(FILES packaging/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME atoll.conf)
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/atoll)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(EXISTS ${PROJECT_SOURCE_DIR}/README.md)
  install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)  # where Debian looks
endif()

# `./dev package`: a .deb of what stands above. dpkg-shlibdeps finds the libraries it depends on.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME atoll)
set(CPACK_PACKAGE_CONTACT "The atoll project <atoll@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train language models on one machine, a cluster, or islands of machines")
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/package)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/postinst)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "openmpi-bin, openssh-client")  # --backend=mpi, --hostfile
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # ./dev package builds the program, not the tests
include(CPack)
