//! obento
