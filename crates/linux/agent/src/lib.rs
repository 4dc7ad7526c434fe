//! The agent of the kernel engine: the program that a kernel of `obento-linux` starts first.
//!
//! The library is empty. `obento-linux` depends on this crate, so that cargo downloads the sources. The build script of
//! `obento-linux` builds the agent from them.
