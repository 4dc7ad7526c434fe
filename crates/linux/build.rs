//! Builds the agent: a static program for the same machine, in a folder of its own, so that neither its flags nor its lock
//! meet those of the build that this is part of.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo tells it"));
    let target = env::var("TARGET").expect("cargo tells it");
    for source in ["agent", "wire"] {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let folder = out.join("agent");
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo tells it"));
    cargo.args(["build", "--quiet", "--locked", "--package", "obento-linux-agent", "--profile", "agent"]);
    cargo.args(["--target", &target]).arg("--target-dir").arg(&folder).current_dir(&here);
    // A checker in place of the compiler, or the flags of a build for another environment, are not for it.
    for variable in
        ["RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"]
    {
        cargo.env_remove(variable);
    }
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the agent of the kernel engine cannot be built");
    let agent = folder.join(target).join("agent").join("obento-linux-agent");
    println!("cargo::rustc-env=OBENTO_LINUX_AGENT={}", agent.display());
}
