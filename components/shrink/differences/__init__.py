"""What another compiler and linker make of a build, although it compiles and links."""
