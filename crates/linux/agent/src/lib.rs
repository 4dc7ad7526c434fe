//! The agent of the kernel engine: the program that a kernel of `obento-linux` starts first.
//!
//! The library is empty. `obento-linux` depends on it, so that cargo downloads the sources of the program, from which
//! its build script builds the agent.
