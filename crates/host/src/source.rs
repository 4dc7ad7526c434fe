//! A directory tree of the host as a source.
