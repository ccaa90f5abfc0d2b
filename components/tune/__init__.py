"""The tune step: search for the inlining decisions that make one program smallest, by measured flips."""
