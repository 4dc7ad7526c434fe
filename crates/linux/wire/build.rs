//! Reports where the sources are, from which the build script of `obento-linux` builds the agent.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=sources={}", env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
}
