//! Python packages that verify the exports and the images of obento.

use std::path::PathBuf;

use xshell::{Shell, cmd};

/// The packages on PyPI.
const PACKAGES: &[&str] = &["prov==2.0.1", "openlineage-python==1.26.0", "jefferson==0.4.8"];

/// Returns a folder with the packages: the folder in `OBENTO_PYTHON_PACKAGES`, or one that is filled once. If they cannot
/// be installed, prints a note and returns `None`; tests then report what they skipped.
pub fn ensure(shell: &Shell) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("OBENTO_PYTHON_PACKAGES") {
        return Some(folder.into());
    }
    let folder = shell.current_dir().join("target/python-packages").join(PACKAGES.join("-"));
    if folder.exists() {
        return Some(folder);
    }
    let begun = folder.with_extension("new");
    let installed = shell.remove_path(&begun).and_then(|()| {
        cmd!(shell, "python3 -m pip install -q --target {begun} {PACKAGES...}")
            .quiet()
            .ignore_stdout()
            .run()?;
        Ok(std::fs::rename(&begun, &folder).map_err(|error| eprintln!("note: {}: {error}", folder.display())))
    });
    match installed {
        Ok(Ok(())) => Some(folder),
        _ => {
            eprintln!("note: no packages of Python: pip cannot install {}", PACKAGES.join(" "));
            None
        }
    }
}
