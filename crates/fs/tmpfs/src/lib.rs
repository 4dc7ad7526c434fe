//! tmpfs
