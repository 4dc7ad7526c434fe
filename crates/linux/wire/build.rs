//! Reports the place of the sources to the build script of `obento-linux`, which builds the agent from them.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=sources={}", env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
}
