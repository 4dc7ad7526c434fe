//! A folder from which DKMS builds the module for each kernel that is installed.
//!
//! The library of the drivers does not depend on the release of the kernel, so it is built once, here. DKMS compiles the C files and
//! links both: it needs a C compiler and the headers, and no Rust.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use xshell::Shell;

use super::{KernelOptions, build, setup};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes `out/obento-VERSION`.
pub fn run(shell: &Shell, options: &KernelOptions, out: &Path) -> Result<()> {
    ensure!(!options.uml, "DKMS is for stock kernels: leave out --uml");
    let options = KernelOptions { stock: true, ..options.clone() };
    let kernel = setup::kernel(shell, &options)?;
    let target = kernel.target(&shell.current_dir());
    let library = build::library(shell, &kernel, &target)?;
    let folder = out.join(format!("obento-{VERSION}"));
    fs::create_dir_all(&folder)?;
    for file in shell.read_dir("crates/kernel/c")? {
        fs::copy(&file, folder.join(file.file_name().unwrap_or_default()))?;
    }
    fs::copy(library, folder.join(shipped()))?;
    fs::write(folder.join("dkms.conf"), conf())?;
    println!("{0}: install it with\n    dkms install {0}", folder.display());
    Ok(())
}

/// The name of the library in the folder. DKMS cleans the folder before each build, which removes `*.a`. Kbuild copies a
/// file with this suffix to the name without it. Source: scripts/Makefile.lib, `cmd_shipped`.
fn shipped() -> String {
    format!("{}_shipped", build::LIBRARY)
}

/// The description for DKMS. Source: dkms(8).
fn conf() -> String {
    format!(
        "PACKAGE_NAME=\"obento\"\nPACKAGE_VERSION=\"{VERSION}\"\nBUILT_MODULE_NAME[0]=\"obento\"\n\
         DEST_MODULE_LOCATION[0]=\"/updates/dkms\"\nAUTOINSTALL=\"yes\"\nBUILD_EXCLUSIVE_KERNEL=\"^6\\.1\\.\"\n\
         BUILD_EXCLUSIVE_ARCH=\"x86_64\"\nSTRIP[0]=\"yes\"\n\
         MAKE[0]=\"make -C $kernel_source_dir M=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build modules\"\n\
         CLEAN=\"make -C $kernel_source_dir M=$dkms_tree/$PACKAGE_NAME/$PACKAGE_VERSION/build clean\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_the_folder_of_dkms_keeps_the_library() {
        // Makefile, `clean`.
        let removed = [".a", ".i", ".o", ".s", ".ko", ".mod", ".mod.c", ".cmd", ".order"];
        let name = shipped();
        assert!(removed.iter().all(|end| !name.ends_with(end)), "{name}");
        assert_eq!(name.strip_suffix("_shipped"), Some(build::LIBRARY));
    }

    #[test]
    fn dkms_is_limited_to_the_kernels_that_the_module_supports() {
        let conf = conf();
        assert!(conf.contains("BUILD_EXCLUSIVE_KERNEL=\"^6\\.1\\.\"\n"), "{conf}");
        assert!(conf.lines().all(|line| line.matches('"').count() == 2), "{conf}");
    }
}
