"""The toolchain step: builds a clang that logs decisions and loads a policy (training) or embeds one (release)."""
