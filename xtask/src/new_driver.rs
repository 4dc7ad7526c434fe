//! Creates a repository for a driver outside of this one. It builds and passes its tests as created.
//!
//! The files are those of `xtask/skeleton` with two words replaced. `skeletonfs` is the name of the crate and of the
//! file system type, and `@WORKSPACE@` is the path of this workspace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The name and the path of the repository.
#[derive(clap::Args)]
pub struct Options {
    /// Name of the crate, the program and the type: lower-case letters and digits.
    name: String,
    /// Path of the repository [default: a folder with that name beside the workspace].
    #[arg(long)]
    path: Option<PathBuf>,
}

macro_rules! skeleton {
    ($($path:literal <- $file:literal)*) => {
        [$(($path, include_str!(concat!("../skeleton/", $file)))),*]
    };
}

/// Paths in the repository, and their contents.
const FILES: [(&str, &str); 12] = skeleton! {
    "Cargo.toml" <- "Cargo.toml.in"
    "README.md" <- "README.md"
    "src/lib.rs" <- "src/lib.rs"
    "src/main.rs" <- "src/main.rs"
    "src/raw.rs" <- "src/raw.rs"
    "src/store.rs" <- "src/store.rs"
    "src/tree.rs" <- "src/tree.rs"
    "src/file.rs" <- "src/file.rs"
    "src/volume.rs" <- "src/volume.rs"
    "tests/contract.rs" <- "tests/contract.rs"
    "fuzz/Cargo.toml" <- "fuzz/Cargo.toml.in"
    "fuzz/fuzz_targets/walk.rs" <- "fuzz/fuzz_targets/walk.rs"
};

/// Writes the repository. Fails if the name is not valid for a crate, or if the folder exists.
pub fn run(options: &Options) -> Result<()> {
    let workspace = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize()?;
    let beside = || workspace.parent().unwrap_or(&workspace).join(&options.name);
    let folder = options.path.clone().unwrap_or_else(beside);
    write(&options.name, &folder, &workspace)?;
    println!("created {}; run `cargo test` there, and read README.md", folder.display());
    Ok(())
}

fn write(name: &str, folder: &Path, workspace: &Path) -> Result<()> {
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    ensure!(is_name, "invalid name '{name}' (expected lower-case letters and digits, and a letter first)");
    ensure!(!folder.exists(), "'{}' exists", folder.display());
    let workspace = workspace.to_str().context("the path of the workspace is not UTF-8")?;
    for (path, text) in FILES {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(path, text.replace("skeletonfs", name).replace("@WORKSPACE@", workspace))?;
    }
    // The versions with which the workspace was tested.
    fs::copy(Path::new(workspace).join("Cargo.lock"), folder.join("Cargo.lock"))?;
    fs::write(folder.join(".gitignore"), "target\ndisk.img\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_name_is_rejected_and_an_existing_folder_is_not_overwritten() {
        let said = |name: &str, folder: &str| {
            write(name, Path::new(folder), Path::new(".")).unwrap_err().to_string()
        };
        assert!(said("../evil", "/nowhere").contains("invalid name"));
        assert!(said("", "/nowhere").contains("invalid name"));
        assert!(said("floppyfs", "/").contains("exists"));
    }

    #[test]
    fn the_path_of_the_workspace_replaces_its_mark_and_no_other_word() {
        let folder = tempfile::tempdir().unwrap();
        let (driver, workspace) = (folder.path().join("floppyfs"), folder.path().join("of obento"));
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("Cargo.lock"), "").unwrap();
        write("floppyfs", &driver, &workspace).unwrap();
        let written = |path: &str| fs::read_to_string(driver.join(path)).unwrap();
        assert!(written("tests/contract.rs").contains("var_os(\"OBENTO_SEEDS\")"));
        assert!(written("README.md").contains("    OBENTO_SEEDS=fuzz/corpus/walk cargo test seeds"));
        let path = format!("path = \"{}/crates/obento\"", workspace.display());
        assert!(written("Cargo.toml").contains(&path));
        for (path, _) in FILES {
            let text = written(path);
            assert!(!text.contains("skeletonfs") && !text.contains("@WORKSPACE@"), "{path}");
        }
    }
}
