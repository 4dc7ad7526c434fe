//! The damaged images from the tests of e2fsprogs, extracted from its Debian source package.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

/// The locations of the source: a mirror, as long as Debian has this version, and the archive of all versions.
const SOURCES: [&str; 2] = [
    "http://deb.debian.org/debian/pool/main/e/e2fsprogs/e2fsprogs_1.47.4.orig.tar.gz",
    "https://snapshot.debian.org/file/62689efed154b2c1b7599d93ba06bb40c7b7aae7",
];
const SHA256: &str = "2cec05f39c20ee621f14926195664e66e6017190ac8e4bbdb16d86082e43c5da";
/// The download helper of apt, which also checks the hash.
pub const HELPER: &str = "/usr/lib/apt/apt-helper";

/// Returns a folder with the images: the folder in `OBENTO_CORPUS`, or one that is filled once. If the source cannot be
/// downloaded, prints a note and returns `None`; tests then report what they skipped.
pub fn ensure(shell: &Shell) -> Result<Option<PathBuf>> {
    if let Some(folder) = std::env::var_os("OBENTO_CORPUS") {
        return Ok(Some(folder.into()));
    }
    let folder = shell.current_dir().join("target/corpus-1.47.4");
    if folder.exists() {
        return Ok(Some(folder));
    }
    let archive = shell.create_temp_dir()?;
    let archive = archive.path().join("e2fsprogs.tar.gz");
    let has_it = |source: &&&str| {
        let sum = format!("SHA256:{SHA256}");
        cmd!(shell, "{HELPER} download-file {source} {archive} {sum}")
            .quiet()
            .ignore_stdout()
            .ignore_stderr()
            .run()
            .is_ok()
    };
    if SOURCES.iter().find(has_it).is_none() {
        eprintln!("note: no damaged images: {HELPER} cannot fetch {}", SOURCES.join(" or "));
        return Ok(None);
    }
    unpack(shell, &archive, folder).map(Some)
}

/// Extracts each image to `NAME.gz`, named after its test.
fn unpack(shell: &Shell, archive: &std::path::Path, folder: PathBuf) -> Result<PathBuf> {
    let begun = folder.with_extension("new");
    shell.remove_path(&begun)?;
    shell.create_dir(&begun)?;
    cmd!(shell, "tar -xzf {archive} -C {begun} --strip-components=2 --wildcards */tests/*/image.gz")
        .quiet()
        .run()?;
    for test in shell.read_dir(&begun)? {
        std::fs::rename(test.join("image.gz"), test.with_extension("gz"))
            .with_context(|| format!("{} has no image", test.display()))?;
        std::fs::remove_dir(&test)?;
    }
    std::fs::rename(&begun, &folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_after_its_test_and_all_images_exist_or_no_image_does() {
        let shell = Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        shell.change_dir(folder.path());
        for test in ["f_one", "f_two"] {
            shell.write_file(format!("e2fsprogs-1/tests/{test}/image.gz"), test).unwrap();
            shell.write_file(format!("e2fsprogs-1/tests/{test}/expect.1"), "").unwrap();
        }
        cmd!(shell, "tar -czf source.tar.gz e2fsprogs-1").quiet().run().unwrap();
        // The remains of an interrupted run.
        shell.write_file("corpus.new/f_one/image.gz", "half").unwrap();
        let images =
            unpack(&shell, &folder.path().join("source.tar.gz"), folder.path().join("corpus")).unwrap();
        let names: Vec<_> = shell.read_dir(&images).unwrap();
        assert_eq!(names, ["f_one.gz", "f_two.gz"].map(|name| images.join(name)));
        assert_eq!(shell.read_file(images.join("f_one.gz")).unwrap(), "f_one");
        assert!(!folder.path().join("corpus.new").exists());
    }
}
