"""Downloads of others' files: web servers, git, Debian's source packages."""
