"""A user's programs, built by stock clang and by the release clang under rows of flags, and what each row gives."""
