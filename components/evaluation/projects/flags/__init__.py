"""A user's programs under rows of flags: what each gives with stock clang and with the release clang."""
