//! Builds the agent, a static program for the same machine, in a separate folder. Its flags and its lock therefore do
//! not conflict with those of the enclosing build. The kernel of the engine exists for x86-64 only; for other machines,
//! the agent is an empty file, which is never used.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The profile of the agent, for packages, which do not contain the workspace. The lock file of the workspace is the
/// same.
const PROFILE: [&str; 6] = [
    "profile.agent.inherits='release'",
    "profile.agent.opt-level='s'",
    "profile.agent.lto=false",
    "profile.agent.debug=false",
    "profile.agent.strip=true",
    "profile.agent.panic='abort'",
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let target = env::var("TARGET").expect("cargo sets it");
    println!("cargo::rerun-if-changed=build.rs");
    let folder = out.join("agent");
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|machine| machine != "x86_64") {
        fs::write(&folder, []).expect("the folder of the build can be written");
        println!("cargo::rustc-env=OBENTO_LINUX_AGENT={}", folder.display());
        return;
    }
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo.args(["build", "--quiet", "--package", "obento-linux-agent", "--profile", "agent"]);
    cargo.args(["--target", &target]).arg("--target-dir").arg(&folder);
    if here.join("agent/Cargo.toml").exists() {
        for source in ["agent", "wire"] {
            println!("cargo::rerun-if-changed={}", here.join(source).display());
        }
        cargo.arg("--locked").current_dir(&here);
    } else {
        packaged(&mut cargo, &out.join("sources"));
    }
    // A profile for short compile times, such as that of `cargo xtask try`, does not optimise the agent, either.
    if env::var("OPT_LEVEL").is_ok_and(|level| level == "0") {
        cargo.args(["--config", "profile.agent.opt-level=0"]);
    }
    // A checker in place of the compiler, or the flags of a build for another environment, do not apply to it.
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

/// Makes `cargo` build the sources in the packages of the agent and its protocol. cargo has downloaded them with all
/// their dependencies, because this crate depends on them. It builds a copy: packages are read-only.
fn packaged(cargo: &mut Command, copy: &Path) {
    for (name, variable) in
        [("agent", "DEP_OBENTO_LINUX_AGENT_SOURCES"), ("wire", "DEP_OBENTO_LINUX_WIRE_SOURCES")]
    {
        copy_folder(Path::new(&env::var_os(variable).expect("cargo sets it")), &copy.join(name));
    }
    // The folder may be below that of another workspace.
    let manifest = copy.join("agent/Cargo.toml");
    let mut text = fs::read_to_string(&manifest).expect("the manifest is in the package");
    text.push_str("\n[workspace]\n");
    fs::write(&manifest, text).expect("the copy can be written");
    let wire = copy.join("wire");
    let patch = format!("patch.crates-io.obento-linux-wire.path='{}'", wire.display());
    cargo.arg("--offline").current_dir(copy.join("agent")).args(["--config", &patch]);
    cargo.args(PROFILE.iter().flat_map(|setting| ["--config", *setting]));
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder of the build can be written");
    for entry in fs::read_dir(from).expect("a package can be read") {
        let entry = entry.expect("a package can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            copy_folder(&from, &to);
        } else {
            fs::write(&to, fs::read(&from).expect("a package can be read")).expect("the copy can be written");
        }
    }
}
