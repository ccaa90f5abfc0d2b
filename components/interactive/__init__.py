"""The command `mlgo interactive`: a compile whose decisions this process makes."""
